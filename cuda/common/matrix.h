// What the bindings of matrix products share: which strides a kernel takes as they are, and when an operand is copied
// first.
#pragma once
#include "binding.h"

namespace fusescope {

// The last two dimensions of a tensor as a kernel takes them: element (i, j) at i * row + j * col, one of the two
// being 1.
struct MatrixStrides {
  int64_t row, col;
};

// Rows and columns may lie in memory either way round, with any leading dimension. The distance along a dimension of
// extent 1 says nothing, so it is replaced by what makes the operand well formed.
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

// The tensor itself where a kernel takes its last two dimensions as they lie, else a contiguous copy: only a matrix
// with gaps between the elements of its rows and of its columns (every second column, say) is copied.
inline Tensor as_matrix(const Tensor& t) {
  const MatrixStrides s = matrix_strides(t);
  return s.row == 1 || s.col == 1 ? t : torch::stable::contiguous(t);
}

}  // namespace fusescope
