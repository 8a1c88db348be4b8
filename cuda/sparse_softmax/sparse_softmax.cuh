// Softmax over the kept elements of each row: out[h, t] = exp(scale x[h, t] - max) / sum, maximum and sum over the
// elements t of the row in scale x[h, .], with one CSR structure that all heads h share. Sums are fp32. Non-finite
// values as in cuda/softmax.
#pragma once
#include "../common/interface.h"

struct SparseSoftmaxArgs {
  const void* x;               // (outer, inner, nnz), elements of a head side by side
  void* out;                   // (outer, inner, nnz), dense
  int64_t x_step[2];           // in elements: outer, inner
  const int32_t* row_offsets;  // rows + 1: row r holds elements row_offsets[r] ... row_offsets[r + 1] - 1
  const int32_t* order;        // rows: every row once, the longest first
  int64_t outer, inner;        // >= 1
  int64_t rows;                // >= 1
  int64_t nnz;                 // >= 1, below 2^31
  float scale;
  int32_t dtype;  // FusescopeDtype of x and out
};
