// Attention forward on e4m3 (8-bit) operands: out = softmax(scale q k^T, masked) v. Two phases, of which a call asks
// for one: q, k and v of 16 bits are quantised, or quantised ones are attended.
//
//   q (B, H, S_q, D)   k, v (B, H_kv, S_k, D), query head h reads KV head h / (H / H_kv), D 64 or 128
//   out (B, H, S_q, D) in the dtype of q, k and v, columns contiguous, rows 16-byte aligned
//
// Quantised, a head is tiles of 64 rows in the order in which Hopper's tensor cores read them (tiles.h):
//   q8 (B, H, q_tiles, 64 D), k8 (B, H_kv, k_tiles, 64 D)   rows, with q_scale (B, H, q_tiles), k_scale (B, H_kv,
//                                                           k_tiles)
//   v8 (B, H_kv, k_tiles, 64 D)                             columns of 64 keys, with v_scale (B, H_kv, D)
// value = byte x scale. Scales are powers of two, the least with which no number is beyond 448: rounding to e4m3 is
// relative, so that any other factor would not make it more exact, and what is representable stays as it is. Rows
// beyond the last are zeros. A key that has a NaN or an infinity in k or v is NaN in k8 and zeros in v8: a row that
// sees it becomes NaN, no other does. A row of q with one is NaN in q8.
//
// rotate: q and k are first multiplied by the same orthogonal matrix, a Hadamard matrix of D rows whose columns have
// signs. That leaves scores as they are and spreads a large number over its row, so that it costs the others less.
//
// The mask is tile lists and bitmaps as in attention.cuh (row_ptr, tile_index, tile_code, bitmaps), or causal: query
// row i sees keys j <= i + S_k - S_q; else every key is live. Rows without a live key give zeros.
#pragma once
#include "../common/interface.h"

enum { FP8_TILE = 64, FP8_COLUMN_PARTS = 16 };
enum Fp8Phase { FP8_QUANTISE = 0, FP8_ATTEND = 1 };

struct AttentionFp8Args {
  const void* q;  // of 16 bits: to be quantised
  const void* k;
  const void* v;
  int64_t q_stride[4];  // in elements: batch, head, row, column
  int64_t k_stride[4];
  int64_t v_stride[4];
  uint8_t* q8;
  uint8_t* k8;
  uint8_t* v8;
  float* q_scale;
  float* k_scale;
  float* v_scale;
  float* column_maxima;  // workspace of quantising: (B, H_kv, FP8_COLUMN_PARTS, D)
  void* out;
  int64_t out_stride[3];  // batch, head, row
  const int32_t* row_ptr;
  const int32_t* tile_index;
  const int32_t* tile_code;
  const uint64_t* bitmaps;
  int32_t mask_stride_b;
  int32_t mask_stride_h;
  int32_t batch;  // B >= 1
  int32_t heads;  // H >= 1, a multiple of heads_kv
  int32_t heads_kv;
  int32_t seq_q;  // >= 1
  int32_t seq_k;  // >= 1
  int32_t head_dim;
  int32_t causal;
  int32_t rotate;
  int32_t phase;   // Fp8Phase
  float scale;     // > 0
  int32_t dtype;   // FusescopeDtype of q, k, v and out
  uint64_t* next;  // workspace: two words that items are drawn from (../common/tickets.cuh)
};
