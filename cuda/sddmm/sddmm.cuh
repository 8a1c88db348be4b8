// Sampled dense-dense product: values[h, t] = sum over d of q[h, row_of[t], d] k[h, columns[t], d], for the nnz kept elements t of
// one structure (CSR) that all heads h share. Products are summed in fp32.
#pragma once
#include "../common/interface.h"

struct SddmmArgs {
  const void* q;       // (outer, inner, rows, depth), elements of a row side by side
  const void* k;       // (outer, inner, keys, depth)
  void* out;           // (outer, inner, nnz), dense
  int64_t q_step[3];   // in elements: outer, inner, row
  int64_t k_step[3];
  const int32_t* row_offsets;  // rows + 1: row r holds elements row_offsets[r] ... row_offsets[r + 1] - 1
  const int32_t* columns;      // nnz, ascending within a row, each in [0, keys)
  const int32_t* row_of;       // nnz: the row of each element
  int64_t outer, inner;        // >= 1
  int64_t rows, keys;          // >= 1
  int64_t nnz;                 // >= 1, below 2^31
  int64_t depth;               // >= 1
  int32_t dtype;               // FusescopeDtype of q, k and out
};
