// GELU of x + bias for torch: fusescope::bias_gelu(Tensor x, Tensor? bias, bool tanh, str impl) -> Tensor.
#include "../common/row_operands.h"
#include "bias_gelu.cuh"

namespace {
using namespace fusescope;

Tensor bias_gelu(const Tensor& x, const std::optional<Tensor>& bias, bool tanh, const std::string& impl) {
  STD_TORCH_CHECK(x.dim() >= 1, "bias_gelu takes a tensor of at least one dimension");
  const Rows r = as_rows(x);
  const std::optional<Tensor> b = optional_row_vector(bias, "bias", x);
  Tensor out = torch::stable::new_empty(x, x.sizes());
  BiasGeluArgs args{r.tensor.const_data_ptr(),
                    b ? b->const_data_ptr() : nullptr,
                    out.mutable_data_ptr(),
                    r.rows,
                    r.cols,
                    r.step,
                    tanh ? 1 : 0,
                    dtype_of(x)};
  if (out.numel() > 0) run("bias_gelu", impl, args, x);
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def("bias_gelu(Tensor x, Tensor? bias, bool tanh, str impl) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) { m.impl("bias_gelu", TORCH_BOX(&bias_gelu)); }
