// Between torch and the C interface: tensors in, pointers out. Uses torch's stable ABI only, so one binary serves
// torch 2.11 to 2.13. A family's binding.cpp is compiled twice: into the CPU library (which also holds the schema), and
// with FUSESCOPE_CUDA defined into the CUDA library.
#pragma once
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <cctype>
#include <string>
#include <unordered_map>

#include "interface.h"

#ifdef FUSESCOPE_CUDA
#define FUSESCOPE_DISPATCH_KEY CUDA
#else
#define FUSESCOPE_DISPATCH_KEY CPU
#endif

namespace fusescope {

using torch::stable::Tensor;
using Entry = const char* (*)(const void* args, void* stream);

// The entry point that the build gave to an implementation of a family; throws where this library has none of that
// name. given: what it takes in the place of a plan, if anything (handle.h).
inline Entry find_entry(const std::string& family, const std::string& impl, const std::string& given = "") {
  thread_local std::unordered_map<std::string, Entry> known;
  std::string symbol = "fusescope_" + family + "__" + impl + (given.empty() ? "" : "__" + given);
  for (char& c : symbol)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  auto found = known.find(symbol);
  if (found != known.end()) return found->second;
  Dl_info self{};
  dladdr(reinterpret_cast<void*>(&find_entry), &self);
  void* library = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  void* address = library ? dlsym(library, symbol.c_str()) : nullptr;
  STD_TORCH_CHECK(address != nullptr, "unsupported: no implementation '", impl, "' of ", family,
                  given.empty() ? "" : " that takes ", given, " is built for this device");
  return known[symbol] = reinterpret_cast<Entry>(address);
}

inline int dtype_of(const Tensor& t) {
  switch (t.scalar_type()) {
    case torch::headeronly::ScalarType::Float:
      return FS_FLOAT32;
    case torch::headeronly::ScalarType::Half:
      return FS_FLOAT16;
    case torch::headeronly::ScalarType::BFloat16:
      return FS_BFLOAT16;
    default:
      STD_TORCH_CHECK(false, "unsupported: dtype (float32, float16 and bfloat16 are)");
  }
}

inline Tensor as_contiguous(const Tensor& t) { return t.is_contiguous() ? t : torch::stable::contiguous(t); }

// Runs an entry on the current stream of the tensor's device, with that device current for the call; throws its reason
// if any.
template <typename Args>
void run(const std::string& family, const std::string& impl, const Args& args, const Tensor& on) {
  Entry entry = find_entry(family, impl);
  void* stream = nullptr;
#ifdef FUSESCOPE_CUDA
  torch::stable::accelerator::DeviceGuard guard(on.get_device_index());
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(on.get_device_index(), &stream));
#else
  (void)on;
#endif
  const char* reason = entry(&args, stream);
  STD_TORCH_CHECK(reason == nullptr, reason ? reason : "");
}

}  // namespace fusescope
