// SwiGLU for torch: fusescope::swiglu(Tensor gate, Tensor up, str impl) -> Tensor. gate and up may be the halves of one
// tensor's rows: rows any distance apart are not copied.
#include "../common/row_operands.h"
#include "swiglu.cuh"

namespace {
using namespace fusescope;

Tensor swiglu(const Tensor& gate, const Tensor& up, const std::string& impl) {
  STD_TORCH_CHECK(gate.dim() >= 1, "swiglu takes tensors of at least one dimension");
  const Rows g = as_rows(gate), u = as_rows(same_shape(up, "up", gate));
  Tensor out = torch::stable::new_empty(gate, gate.sizes());
  const SwigluArgs args{g.tensor.const_data_ptr(),
                        u.tensor.const_data_ptr(),
                        out.mutable_data_ptr(),
                        g.rows,
                        g.cols,
                        g.step,
                        u.step,
                        dtype_of(gate)};
  if (out.numel() > 0) run("swiglu", impl, args, gate);
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) { m.def("swiglu(Tensor gate, Tensor up, str impl) -> Tensor"); }
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) { m.impl("swiglu", TORCH_BOX(&swiglu)); }
