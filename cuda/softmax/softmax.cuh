// Softmax over the last dimension: out[r, j] = exp(x[r, j] - max_j x[r, j]) / sum_j exp(x[r, j] - max_j x[r, j]).
//
// Non-finite inputs follow torch: a row that is all -inf, or holds +inf or NaN, becomes NaN; -inf beside finite values
// gives 0.
#pragma once
#include "../common/interface.h"

struct SoftmaxArgs {
  const void* x;  // row r begins at x[r * x_row]; its cols elements lie side by side
  void* out;      // rows x cols elements, dense, never aliasing x
  int64_t rows;   // >= 1
  int64_t cols;   // >= 1
  int64_t x_row;  // distance between rows in elements, >= 0
  int32_t dtype;  // FusescopeDtype of x and out; sums are fp32
};
