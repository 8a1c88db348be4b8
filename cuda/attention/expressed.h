// Kernels that were compiled with a score expression, for the binding: found by their name, and the tensors that the
// expression reads.
//
// Such a kernel is in a library of its own (backend/fusescope/kernels/expressed/), loaded so that its symbol is seen by
// all; the name has a hash of what it was compiled with.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "../common/handle.h"
#include "scored.h"

namespace fusescope {

inline void add_tables(ScoreTables& to, const std::vector<Handle>& tables, const Handle& q) {
  STD_TORCH_CHECK(tables.size() <= kMostTables, "a score expression reads at most ", kMostTables, " tensors");
  for (const Handle& t : tables) {
    const int64_t dim = t.dim(), *size = t.sizes();
    const bool integers = t.dtype() == aoti_torch_dtype_int32();
    STD_TORCH_CHECK((integers || t.dtype() == aoti_torch_dtype_float32()) && (dim == 1 || dim == 2) && t.contiguous() &&
                        t.numel() > 0 && t.numel() < (int64_t(1) << 31) && t.device_type() == q.device_type() &&
                        t.device_index() == q.device_index(),
                    "a tensor of a score expression is float32 or int32, of one or two dimensions, contiguous, of 1 to "
                    "2^31 - 1 elements, on q's device");
    to.integers |= uint32_t(integers) << to.count;
    to.matrices |= uint32_t(dim == 2) << to.count;
    to.table[to.count++] = {t.data(), dim == 2 ? int32_t(size[0]) : 1, int32_t(size[dim - 1])};
  }
}

// A kernel of this library (as emulated ones are) or of any that is loaded; throws where there is none.
inline Entry expressed_entry(std::string_view impl) {
  thread_local std::unordered_map<std::string, Entry> known;
  const std::string symbol = "fusescope_attention__" + std::string(impl);
  const auto found = known.find(symbol);
  if (found != known.end()) return found->second;
  Dl_info self{};
  dladdr(reinterpret_cast<void*>(&expressed_entry), &self);
  void* const library = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  void* address = library ? dlsym(library, symbol.c_str()) : nullptr;
  if (!address) address = dlsym(RTLD_DEFAULT, symbol.c_str());
  STD_TORCH_CHECK(address, "unsupported: no kernel '", std::string(impl),
                  "' is loaded: fusescope.compile_score compiles a score expression into a kernel");
  return known[symbol] = reinterpret_cast<Entry>(address);
}

// On the current stream of q's device, as run() of handle.h.
inline void run_expressed(std::string_view impl, const AttentionCallArgs& call, const Handle& q) {
  const Entry entry = expressed_entry(impl);
  void* stream = nullptr;
#ifdef FUSESCOPE_CUDA
  const int32_t device = q.device_index();
  std::optional<torch::stable::accelerator::DeviceGuard> guard;
  if (torch::stable::accelerator::getCurrentDeviceIndex() != device) guard.emplace(device);
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
#else
  (void)q;
#endif
  const char* reason = entry(&call, stream);
  STD_TORCH_CHECK(reason == nullptr, reason ? reason : "");
}

}  // namespace fusescope
