// Sampled dense-dense product: values[h, t] = sum over d of q[h, row_of[t], d] k[h, columns[t], d], for the nnz kept
// elements t of one structure that all heads h share. Products are summed in fp32.
//
// CSR: as below. BSR: entries are square blocks of side `block`; row_offsets, columns and row_of count block rows and
// block columns; out[h, t] is the block's products, row by row, with zeros where bits says that an element is not kept
// (or does not exist).
#pragma once
#include "../common/interface.h"

struct SddmmArgs {
  const void* q;      // (outer, inner, rows, depth), elements of a row side by side
  const void* k;      // (outer, inner, keys, depth)
  void* out;          // (outer, inner, nnz), or (outer, inner, nnz, block, block); dense
  int64_t q_step[3];  // in elements: outer, inner, row
  int64_t k_step[3];
  const int32_t* row_offsets;  // rows + 1: row r holds elements row_offsets[r] ... row_offsets[r + 1] - 1
  const int32_t* columns;      // nnz, ascending within a row, each in [0, keys)
  const int32_t* row_of;       // nnz: the row of each element
  int64_t outer, inner;        // >= 1
  int64_t rows, keys;          // >= 1
  int64_t nnz;                 // entries: >= 1, below 2^31
  int64_t depth;               // >= 1
  int32_t dtype;               // FusescopeDtype of q, k and out
  int32_t block;               // 0: CSR; 16, 32 or 64: BSR
  const uint64_t* bits;        // BSR: bit c of bits[t * block + r] says whether row r of block t keeps column c
};
