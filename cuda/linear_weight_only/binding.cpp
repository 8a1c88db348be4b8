// A linear layer with 8-bit weights for torch: fusescope::linear_weight_only(Tensor x, Tensor weight, Tensor scales,
// Tensor? bias, Tensor? residual, int activation, bool settled, str impl) -> Tensor. weight: int8 or float8_e4m3fn;
// rows of x, weight and residual may be any distance apart.
#include "../common/row_operands.h"
#include "linear_weight_only.cuh"

namespace {
using namespace fusescope;
using torch::headeronly::ScalarType;

int32_t format_of(const Tensor& weight) {
  const ScalarType type = weight.scalar_type();
  STD_TORCH_CHECK(type == ScalarType::Char || type == ScalarType::Float8_e4m3fn,
                  "linear_weight_only takes a weight of int8 or float8_e4m3fn");
  return type == ScalarType::Char ? WEIGHT_INT8 : WEIGHT_E4M3;
}

Tensor linear_weight_only(const Tensor& x, const Tensor& weight, const Tensor& scales,
                          const std::optional<Tensor>& bias, const std::optional<Tensor>& residual, int64_t activation,
                          bool settled, const std::string& impl) {
  STD_TORCH_CHECK(
      x.dim() >= 1 && weight.dim() == 2 && weight.sizes()[1] == x.sizes()[x.dim() - 1] && weight.sizes()[1] >= 1,
      "linear_weight_only takes x (..., K) and weight (N, K), K at least 1");
  STD_TORCH_CHECK(activation >= WEIGHT_ONLY_NONE && activation <= WEIGHT_ONLY_GELU_TANH,
                  "activation is 0, 1 (erf) or 2 (tanh)");
  const int64_t outputs = weight.sizes()[0];
  STD_TORCH_CHECK(weight.get_device_index() == x.get_device_index() && scales.dim() == 1 &&
                      scales.sizes()[0] == outputs && scales.scalar_type() == ScalarType::Float &&
                      scales.get_device_index() == x.get_device_index(),
                  "scales are float32, one for each output, on x's device, as weight is");
  std::vector<int64_t> shape(x.sizes().begin(), x.sizes().end());
  shape.back() = outputs;
  Tensor out = torch::stable::new_empty(x, shape);
  LinearWeightOnlyArgs args{};
  args.format = format_of(weight);
  const Rows rows = as_rows(x), weights = as_rows(weight);
  const Tensor each = as_contiguous(scales);
  std::optional<Tensor> added;
  std::optional<Rows> onto;
  if (bias) {
    STD_TORCH_CHECK(bias->dim() == 1 && bias->sizes()[0] == outputs, "bias has an element for each output");
    check_alike(*bias, "bias", x);
    added = as_contiguous(*bias);
    args.bias = added->const_data_ptr();
  }
  if (residual) {
    onto = as_rows(same_shape(*residual, "residual", out));
    args.residual = onto->tensor.const_data_ptr(), args.residual_row = onto->step;
  }
  args.x = rows.tensor.const_data_ptr(), args.x_row = rows.step;
  args.weight = static_cast<const uint8_t*>(weights.tensor.const_data_ptr()), args.weight_row = weights.step;
  args.scales = static_cast<const float*>(each.const_data_ptr());
  args.out = out.mutable_data_ptr();
  args.rows = rows.rows, args.outputs = outputs, args.terms = rows.cols;
  args.activation = int32_t(activation), args.dtype = dtype_of(x);
  // a copy was written by the kernel before this one
  args.settled = settled && weights.tensor.const_data_ptr() == weight.const_data_ptr();
  if (out.numel() > 0) run("linear_weight_only", impl, args, x);
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def(
      "linear_weight_only(Tensor x, Tensor weight, Tensor scales, Tensor? bias, Tensor? residual, int activation, bool "
      "settled, str impl) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) {
  m.impl("linear_weight_only", TORCH_BOX(&linear_weight_only));
}
