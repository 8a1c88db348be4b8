// Sparse-dense product: out[h, r, d] = sum over the kept elements t of row r of values[h, t] v[h, columns[t], d], with
// one structure that all heads h share. Products are summed in fp32; a row without elements is zeros.
//
// CSR: as below. BSR: entries are square blocks of side `block`, values[h, t] their elements row by row; row_offsets,
// columns and order count block rows and block columns. Blocks are multiplied whole: what a mask does not keep is a
// zero among the values.
#pragma once
#include "../common/interface.h"

struct SpmmArgs {
  const void* values;      // (outer, inner, nnz) or (outer, inner, nnz, block, block), elements of a head side by side
  const void* v;           // (outer, inner, keys, depth), elements of a row side by side
  void* out;               // (outer, inner, rows, depth), dense
  int64_t values_step[2];  // in elements: outer, inner
  int64_t v_step[3];       // outer, inner, row
  const int32_t* row_offsets;  // rows + 1: row r holds elements row_offsets[r] ... row_offsets[r + 1] - 1
  const int32_t* columns;      // nnz, ascending within a row, each in [0, keys)
  const int32_t* order;        // rows: every row once, the longest first
  int64_t long_rows;           // that many rows at the front of order are long enough to be shared by several warps
  int64_t outer, inner;        // >= 1
  int64_t rows, keys;          // >= 1
  int64_t nnz;                 // entries: below 2^31, may be 0
  int64_t depth;               // >= 1
  int32_t dtype;               // FusescopeDtype of values, v and out
  int32_t block;               // 0: CSR; 16, 32 or 64: BSR
};
