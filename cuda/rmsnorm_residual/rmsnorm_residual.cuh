// RMSNorm of a sum: s = x + residual, out[r, j] = s[r, j] / sqrt(mean of s[r]^2 + eps) * weight[j], and s itself.
//
// The norm is that of the sum in fp32; the sum that is written is rounded to the storage type.
#pragma once
#include "../common/interface.h"

// Row r of an operand begins at data[r / inner * outer_step + r % inner * inner_step], so that the heads of a packed
// QKV product are rows without a copy; the cols elements of a row are contiguous.
struct RmsnormRows {
  const void* data;
  int64_t outer_step, inner_step;  // in elements
};

struct RmsnormResidualArgs {
  RmsnormRows x;
  RmsnormRows residual;  // data is nullptr for zeros
  const void* weight;    // cols elements
  void* out;             // rows x cols elements, dense, never aliasing an input
  void* sum;             // the same; nullptr exactly where there is no residual
  int64_t rows;          // >= 1
  int64_t inner;         // >= 1
  int64_t cols;          // >= 1
  float eps;             // >= 0
  int32_t dtype;         // FusescopeDtype of all of them
};

#ifdef __CUDACC__
__host__ __device__
#endif
inline int64_t row_begin(const RmsnormRows& rows, int64_t r, int64_t inner) {
  return r / inner * rows.outer_step + r % inner * rows.inner_step;
}
