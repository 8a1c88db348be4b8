// LayerNorm over the last dimension: out[r, j] = (x[r, j] - mean_r) / sqrt(var_r + eps) * weight[j] + bias[j].
//
// var is the mean squared distance from the mean (no correction), taken in a second pass over the row, so that a mean far from
// zero does not cancel it away. Mean and variance are fp32.
#pragma once
#include "../common/interface.h"

struct LayernormArgs {
  const void* x;       // row r begins at x[r * x_row]; its cols elements lie side by side
  const void* weight;  // cols elements, or nullptr for ones
  const void* bias;    // cols elements, or nullptr for zeros
  void* out;           // rows x cols elements, dense, never aliasing x
  int64_t rows;        // >= 1
  int64_t cols;        // >= 1
  int64_t x_row;       // distance between rows in elements, >= 0
  float eps;           // >= 0
  int32_t dtype;       // FusescopeDtype of x, weight, bias and out
};
