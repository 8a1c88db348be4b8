// For the bindings of matrix products: which strides kernels support, and when an operand is copied first.
#pragma once
#include "binding.h"

namespace fusescope {

// Strides of the last two dimensions: element (i, j) is at i * row + j * col; kernels need one of the two to be 1.
struct MatrixStrides {
  int64_t row, col;
};

// Row-major or column-major with any leading dimension. The stride of a dimension of extent 1 is arbitrary, so it is
// replaced by one that makes the operand well formed.
inline MatrixStrides matrix_strides(const Tensor& t) {
  const int64_t d = t.dim(), rows = t.sizes()[d - 2], cols = t.sizes()[d - 1];
  MatrixStrides s{t.strides()[d - 2], t.strides()[d - 1]};
  if (rows == 1 && cols == 1) return {1, 1};
  if (cols == 1 && s.row != 1) s.col = 1;
  if (cols == 1 && s.row == 1) s.col = rows;
  if (rows == 1 && s.col != 1) s.row = 1;
  if (rows == 1 && s.col == 1) s.row = cols;
  return s;
}

// The tensor itself where kernels support its strides, else a contiguous copy: only a matrix
// with gaps between the elements of its rows and of its columns (every second column, say) is copied.
inline Tensor as_matrix(const Tensor& t) {
  const MatrixStrides s = matrix_strides(t);
  return s.row == 1 || s.col == 1 ? t : torch::stable::contiguous(t);
}

}  // namespace fusescope
