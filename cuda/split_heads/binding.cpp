// Heads of a QKV product for torch: fusescope::split_heads(Tensor qkv, Tensor? bias, int heads, int kv_heads, str impl)
// -> Tensor, one vector that holds q, k and v one after the other, of which the Python function gives views.
#include "../common/row_operands.h"
#include "split_heads.cuh"

namespace {
using namespace fusescope;

Tensor split_heads(const Tensor& qkv, const std::optional<Tensor>& bias, int64_t heads, int64_t kv_heads,
                   const std::string& impl) {
  STD_TORCH_CHECK(qkv.dim() == 2 || qkv.dim() == 3, "split_heads takes (batch, seq, width) or (total, width)");
  STD_TORCH_CHECK(heads >= 1 && kv_heads >= 1, "split_heads takes at least one head of each kind");
  const Rows r = as_rows(qkv);
  STD_TORCH_CHECK(r.cols % (heads + 2 * kv_heads) == 0, "the width ", r.cols,
                  " is not a multiple of heads + 2 kv_heads, ", heads + 2 * kv_heads);
  const std::optional<Tensor> b = optional_row_vector(bias, "bias", qkv);
  Tensor out = torch::stable::new_empty(qkv, {qkv.numel()});
  SplitHeadsArgs args{};
  args.qkv = r.tensor.const_data_ptr();
  args.bias = b ? b->const_data_ptr() : nullptr;
  args.out = out.mutable_data_ptr();
  args.batch = qkv.sizes()[0], args.seq = qkv.dim() == 3 ? qkv.sizes()[1] : 1;
  args.heads = heads, args.kv_heads = kv_heads, args.head_dim = r.cols / (heads + 2 * kv_heads);
  args.row = r.step, args.dtype = dtype_of(qkv);
  if (out.numel() > 0) run("split_heads", impl, args, qkv);
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def("split_heads(Tensor qkv, Tensor? bias, int heads, int kv_heads, str impl) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) { m.impl("split_heads", TORCH_BOX(&split_heads)); }
