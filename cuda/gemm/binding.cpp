// Matrix product for torch: fusescope::gemm(Tensor a, Tensor b, str impl) -> Tensor, (m, k) x (k, n) -> (m, n).
#include "../common/matrix.h"
#include "gemm.cuh"

namespace {
using namespace fusescope;

Tensor gemm(const Tensor& a, const Tensor& b, const std::string& impl) {
  STD_TORCH_CHECK(a.dim() == 2 && b.dim() == 2, "gemm takes two matrices, not tensors of ", a.dim(), " and ", b.dim(),
                  " dimensions");
  STD_TORCH_CHECK(a.sizes()[1] == b.sizes()[0], "gemm takes (m, k) and (k, n); k is ", a.sizes()[1], " and ",
                  b.sizes()[0]);
  STD_TORCH_CHECK(a.scalar_type() == b.scalar_type() && a.get_device_index() == b.get_device_index(),
                  "gemm takes two matrices of one dtype and device");
  Tensor x = as_matrix(a), y = as_matrix(b);
  const MatrixStrides xs = matrix_strides(x), ys = matrix_strides(y);
  const int64_t m = x.sizes()[0], k = x.sizes()[1], n = y.sizes()[1];
  Tensor out = torch::stable::new_empty(x, {m, n});
  GemmArgs args{x.const_data_ptr(), y.const_data_ptr(), out.mutable_data_ptr(), m, n, k, xs.row, xs.col, ys.row, ys.col,
                dtype_of(x)};
  if (m > 0 && n > 0) run("gemm", impl, args, x);
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) { m.def("gemm(Tensor a, Tensor b, str impl) -> Tensor"); }
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) { m.impl("gemm", TORCH_BOX(&gemm)); }
