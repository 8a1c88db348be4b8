// LayerNorm over the last dimension: out[r, j] = (x[r, j] - mean_r) / sqrt(var_r + eps) * weight[j] + bias[j].
//
// var is the mean squared distance from the mean (no correction); sums are fp32. So that a mean far from zero costs no
// accuracy, kernels subtract the first element of the row from all others before anything else, and take the variance
// about the mean in a second pass. That is right also where the first element is an outlier: with n elements its
// distance from the mean is at most sqrt(n - 1) standard deviations, so the rounding it brings in is at most sqrt(n)
// 2^-24 of one.
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
