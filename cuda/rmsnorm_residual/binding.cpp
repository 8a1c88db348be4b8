// RMSNorm of x + residual for torch: fusescope::rmsnorm_residual(Tensor x, Tensor? residual, Tensor weight, float eps,
// str impl) -> (Tensor, Tensor), the norm and the sum; without a residual the second has no elements.
#include <tuple>

#include "../common/heads.h"
#include "../common/row_operands.h"
#include "rmsnorm_residual.cuh"

namespace {
using namespace fusescope;

std::tuple<Tensor, Tensor> rmsnorm_residual(const Tensor& x, const std::optional<Tensor>& residual,
                                            const Tensor& weight, double eps, const std::string& impl) {
  STD_TORCH_CHECK(x.dim() >= 1, "rmsnorm_residual takes a tensor of at least one dimension");
  const Heads xs = as_heads(x, 1);
  const Tensor w = row_vector(weight, "weight", x);
  std::optional<Heads> rs;
  if (residual) rs = as_heads(same_shape(*residual, "residual", x), 1);
  Tensor out = torch::stable::new_empty(x, x.sizes());
  Tensor sum = residual ? torch::stable::new_empty(x, x.sizes()) : torch::stable::new_empty(x, {0});
  RmsnormResidualArgs args{};
  args.x = {xs.tensor.const_data_ptr(), xs.outer_step, xs.inner_step};
  if (rs) args.residual = {rs->tensor.const_data_ptr(), rs->outer_step, rs->inner_step};
  args.weight = w.const_data_ptr();
  args.out = out.mutable_data_ptr();
  args.sum = rs ? sum.mutable_data_ptr() : nullptr;
  args.rows = xs.outer * xs.inner, args.inner = xs.inner, args.cols = x.sizes()[x.dim() - 1];
  args.eps = float(eps), args.dtype = dtype_of(x);
  if (out.numel() > 0) run("rmsnorm_residual", impl, args, x);
  return {out, sum};
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def("rmsnorm_residual(Tensor x, Tensor? residual, Tensor weight, float eps, str impl) -> (Tensor, Tensor)");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) {
  m.impl("rmsnorm_residual", TORCH_BOX(&rmsnorm_residual));
}
