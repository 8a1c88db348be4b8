// LayerNorm of a sum: s = x + bias + residual, out[r, j] = (s[r, j] - mean_r) / sqrt(var_r + eps) * weight[j] +
// shift[j].
//
// The sum is kept in fp32: it is not rounded to the storage type before the norm. As in cuda/layernorm, the first
// element of a row's sum is subtracted from all others before anything is added up, and the variance is taken about the
// mean.
#pragma once
#include "../common/interface.h"

struct BiasResidualLayernormArgs {
  const void* x;         // row r begins at x[r * x_row]; its cols elements are contiguous
  const void* bias;      // cols elements, or nullptr for zeros
  const void* residual;  // row r begins at residual[r * residual_row], or nullptr for zeros
  const void* weight;    // cols elements
  const void* shift;     // cols elements
  void* out;             // rows x cols elements, dense, never aliasing an input
  int64_t rows;          // >= 1
  int64_t cols;          // >= 1
  int64_t x_row;         // distances between rows in elements, >= 0
  int64_t residual_row;
  float eps;      // >= 0
  int32_t dtype;  // FusescopeDtype of all of them
};
