// For the bindings of row-wise operators: a tensor of any shape as rows of its last dimension.
#pragma once
#include "binding.h"

namespace fusescope {

struct __attribute__((visibility("hidden"))) Rows {  // torch's stable Tensor is hidden too
  Tensor tensor;                                     // owns the storage of the rows
  int64_t rows, cols;                                // rows = product of all dimensions but the last
  int64_t step;                                      // distance between rows in elements
};

// The tensor's own rows if the last dimension is dense and the others have one common stride (a slice of columns,
// say, or every second row); else of a contiguous copy.
inline Rows as_rows(const Tensor& t) {
  const int64_t d = t.dim(), cols = t.sizes()[d - 1];
  int64_t rows = 1, step = cols;
  bool even = cols == 1 || t.strides()[d - 1] == 1;
  for (int64_t i = d - 2; i >= 0 && even; --i) {
    const int64_t size = t.sizes()[i], stride = t.strides()[i];
    if (size == 1) continue;
    if (rows == 1)
      step = stride;
    else
      even = stride == rows * step;
    rows *= size;
  }
  if (even) return {t, rows, cols, step};
  Tensor dense = torch::stable::contiguous(t);
  return {dense, cols ? dense.numel() / cols : 0, cols, cols};
}

}  // namespace fusescope
