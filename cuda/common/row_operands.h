// Operands of row-wise operators besides the rows themselves: vectors of a row's length, and tensors of the same shape.
#pragma once
#include <optional>

#include "rows.h"

namespace fusescope {

inline void check_alike(const Tensor& t, const char* name, const Tensor& x) {
  STD_TORCH_CHECK(t.scalar_type() == x.scalar_type() && t.get_device_index() == x.get_device_index(), name,
                  " has the dtype and device of x");
}

// A vector with an element for each of a row, dense.
inline Tensor row_vector(const Tensor& t, const char* name, const Tensor& x) {
  const int64_t cols = x.sizes()[x.dim() - 1];
  STD_TORCH_CHECK(t.dim() == 1 && t.sizes()[0] == cols, name, " has as many elements as a row");
  check_alike(t, name, x);
  return as_contiguous(t);
}

// The same of an optional tensor.
inline std::optional<Tensor> optional_row_vector(const std::optional<Tensor>& t, const char* name, const Tensor& x) {
  if (!t) return t;
  return row_vector(*t, name, x);
}

// t itself, of which it is checked that it has x's shape, dtype and device.
inline const Tensor& same_shape(const Tensor& t, const char* name, const Tensor& x) {
  bool same = t.dim() == x.dim();
  for (int64_t i = 0; same && i < x.dim(); ++i) same = t.sizes()[i] == x.sizes()[i];
  STD_TORCH_CHECK(same, name, " has the shape of x");
  check_alike(t, name, x);
  return t;
}

}  // namespace fusescope
