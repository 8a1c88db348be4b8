// A norm and the linear layer behind it for torch: fusescope::norm_linear(Tensor x, Tensor scale, Tensor? shift, Tensor
// weight, Tensor? bias, int activation, float eps, bool settled, str impl) -> Tensor.
#include "../common/row_operands.h"
#include "norm_linear.cuh"

namespace {
using namespace fusescope;

Tensor norm_linear(const Tensor& x, const Tensor& scale, const std::optional<Tensor>& shift, const Tensor& weight,
                   const std::optional<Tensor>& bias, int64_t activation, double eps, bool settled,
                   const std::string& impl) {
  STD_TORCH_CHECK(
      x.dim() >= 1 && weight.dim() == 2 && weight.sizes()[1] == x.sizes()[x.dim() - 1] && weight.sizes()[1] >= 1,
      "norm_linear takes x (..., K) and weight (N, K), K at least 1");
  STD_TORCH_CHECK(activation >= NORM_LINEAR_NONE && activation <= NORM_LINEAR_GELU_TANH,
                  "activation is 0, 1 (erf) or 2 (tanh)");
  check_alike(weight, "weight", x);
  const int64_t outputs = weight.sizes()[0];
  const Rows rows = as_rows(x), weights = as_rows(weight);
  const Tensor factor = row_vector(scale, "scale", x);
  const std::optional<Tensor> added = optional_row_vector(shift, "shift", x);
  std::optional<Tensor> onto;
  if (bias) {
    STD_TORCH_CHECK(bias->dim() == 1 && bias->sizes()[0] == outputs, "bias has an element for each output");
    check_alike(*bias, "bias", x);
    onto = as_contiguous(*bias);
  }
  std::vector<int64_t> shape(x.sizes().begin(), x.sizes().end());
  shape.back() = outputs;
  Tensor out = torch::stable::new_empty(x, shape);
  NormLinearArgs args{};
  args.x = rows.tensor.const_data_ptr(), args.x_row = rows.step;
  args.scale = factor.const_data_ptr(), args.shift = added ? added->const_data_ptr() : nullptr;
  args.weight = weights.tensor.const_data_ptr(), args.weight_row = weights.step;
  args.bias = onto ? onto->const_data_ptr() : nullptr;
  args.out = out.mutable_data_ptr();
  args.rows = rows.rows, args.outputs = outputs, args.terms = rows.cols;
  args.eps = float(eps), args.activation = int32_t(activation), args.dtype = dtype_of(x);
  // A copy was written by the kernel before this one.
  args.settled = settled && args.weight == weight.const_data_ptr() && args.scale == scale.const_data_ptr() &&
                 (!shift || args.shift == shift->const_data_ptr()) && (!bias || args.bias == bias->const_data_ptr());
  if (out.numel() > 0) run("norm_linear", impl, args, x);
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def(
      "norm_linear(Tensor x, Tensor scale, Tensor? shift, Tensor weight, Tensor? bias, int activation, float eps, bool "
      "settled, str impl) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) { m.impl("norm_linear", TORCH_BOX(&norm_linear)); }
