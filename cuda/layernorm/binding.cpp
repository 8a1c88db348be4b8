// LayerNorm over the last dimension for torch:
// fusescope::layernorm(Tensor x, Tensor? weight, Tensor? bias, float eps, str impl) -> Tensor.
#include "../common/rows.h"
#include "layernorm.cuh"

#include <optional>

namespace {
using namespace fusescope;

// A parameter of the row as a dense vector if there is one.
std::optional<Tensor> parameter(const std::optional<Tensor>& t, const char* name, const Tensor& x) {
  if (!t) return t;
  const int64_t cols = x.sizes()[x.dim() - 1];
  STD_TORCH_CHECK(t->dim() == 1 && t->sizes()[0] == cols, "layernorm: ", name, " has as many elements as a row");
  STD_TORCH_CHECK(t->scalar_type() == x.scalar_type() && t->get_device_index() == x.get_device_index(),
                  "layernorm: ", name, " has the dtype and device of x");
  return as_contiguous(*t);
}

Tensor layernorm(const Tensor& x, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias, double eps,
                 const std::string& impl) {
  STD_TORCH_CHECK(x.dim() >= 1, "layernorm takes a tensor of at least one dimension");
  Rows r = as_rows(x);
  std::optional<Tensor> w = parameter(weight, "weight", x), b = parameter(bias, "bias", x);
  Tensor out = torch::stable::new_empty(x, x.sizes());
  LayernormArgs args{r.tensor.const_data_ptr(),
                     w ? w->const_data_ptr() : nullptr,
                     b ? b->const_data_ptr() : nullptr,
                     out.mutable_data_ptr(),
                     r.rows,
                     r.cols,
                     r.step,
                     float(eps),
                     dtype_of(x)};
  if (out.numel() > 0) run("layernorm", impl, args, x);
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def("layernorm(Tensor x, Tensor? weight, Tensor? bias, float eps, str impl) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) { m.impl("layernorm", TORCH_BOX(&layernorm)); }
