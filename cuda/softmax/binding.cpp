// Softmax for torch: fusescope::softmax(Tensor x, str impl) -> Tensor, over the last dimension.
#include "../common/rows.h"
#include "softmax.cuh"

namespace {
using namespace fusescope;

Tensor softmax(const Tensor& x, const std::string& impl) {
  STD_TORCH_CHECK(x.dim() >= 1, "softmax takes a tensor of at least one dimension");
  Rows r = as_rows(x);
  Tensor out = torch::stable::new_empty(x, x.sizes());
  SoftmaxArgs args{r.tensor.const_data_ptr(), out.mutable_data_ptr(), r.rows, r.cols, r.step, dtype_of(x)};
  if (out.numel() > 0) run("softmax", impl, args, x);
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) { m.def("softmax(Tensor x, str impl) -> Tensor"); }
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) { m.impl("softmax", TORCH_BOX(&softmax)); }
