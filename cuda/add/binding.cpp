// Tensor add for torch: fusescope::add(Tensor a, Tensor b, str impl) -> Tensor.
#include "../common/binding.h"
#include "add.cuh"

namespace {
using namespace fusescope;

Tensor add(const Tensor& a, const Tensor& b, const std::string& impl) {
  Tensor x = as_contiguous(a), y = as_contiguous(b), out = torch::stable::empty_like(x);
  AddArgs args{x.const_data_ptr(), y.const_data_ptr(), out.mutable_data_ptr(), x.numel(), dtype_of(x)};
  run("add", impl, args, x);
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) { m.def("add(Tensor a, Tensor b, str impl) -> Tensor"); }
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) { m.impl("add", TORCH_BOX(&add)); }
