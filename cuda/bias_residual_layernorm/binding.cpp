// LayerNorm of x + bias + residual for torch: fusescope::bias_residual_layernorm(Tensor x, Tensor? bias, Tensor?
// residual, Tensor weight, Tensor shift, float eps, str impl) -> Tensor.
#include "../common/row_operands.h"
#include "bias_residual_layernorm.cuh"

namespace {
using namespace fusescope;

Tensor bias_residual_layernorm(const Tensor& x, const std::optional<Tensor>& bias,
                               const std::optional<Tensor>& residual, const Tensor& weight, const Tensor& shift,
                               double eps, const std::string& impl) {
  STD_TORCH_CHECK(x.dim() >= 1, "bias_residual_layernorm takes a tensor of at least one dimension");
  const Rows xs = as_rows(x);
  const std::optional<Tensor> b = optional_row_vector(bias, "bias", x);
  const Tensor w = row_vector(weight, "weight", x), s = row_vector(shift, "shift", x);
  std::optional<Rows> rs;
  if (residual) rs = as_rows(same_shape(*residual, "residual", x));
  Tensor out = torch::stable::new_empty(x, x.sizes());
  BiasResidualLayernormArgs args{};
  args.x = xs.tensor.const_data_ptr();
  args.bias = b ? b->const_data_ptr() : nullptr;
  args.residual = rs ? rs->tensor.const_data_ptr() : nullptr;
  args.weight = w.const_data_ptr(), args.shift = s.const_data_ptr();
  args.out = out.mutable_data_ptr();
  args.rows = xs.rows, args.cols = xs.cols, args.x_row = xs.step, args.residual_row = rs ? rs->step : 0;
  args.eps = float(eps), args.dtype = dtype_of(x);
  if (out.numel() > 0) run("bias_residual_layernorm", impl, args, x);
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def(
      "bias_residual_layernorm(Tensor x, Tensor? bias, Tensor? residual, Tensor weight, Tensor shift, float eps, str "
      "impl) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) {
  m.impl("bias_residual_layernorm", TORCH_BOX(&bias_residual_layernorm));
}
