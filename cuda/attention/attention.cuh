// Fused attention forward, out = softmax(scale q k^T + bias, masked) v, for any mask given as tile lists.
//
//   q (B, H, S_q, D)   k, v (B, H_kv, S_k, D), query head h reads KV head h / (H / H_kv)
//   out (B, H, S_q, D), columns contiguous, strides multiples of 8 elements, 16-byte aligned
//   bias (B, H, S_q, S_k) or nullptr; a stride of 0 broadcasts. Rows without any live key give zeros.
//
// A masked key is unseen: what k, v and bias hold there, NaN and infinities included, does not reach rows that do
// not see it (row_again.cuh).
//
// The mask is a tile list: the live 64 x 64 tiles of each query tile. Where it differs by batch entry or head there are
// several; entry (b, h) uses mask m = b mask_stride_b + h mask_stride_h. The tiles of query tile t are
//   tile_index[i], tile_code[i]   for row_ptr[m q_tiles + t] <= i < row_ptr[m q_tiles + t + 1]
// tile_index is the KV tile (ascending), tile_code -1 where all of it (within S_q x S_k) is live,
// else the index of a mask bitmap: bit c of bitmaps[64 code + r] says whether row r of the tile sees column c. Bits
// outside S_q x S_k are 0. row_ptr == nullptr: every tile is live and full.
//
// The schedule is the same in steps of two KV tiles, for two neighbouring query tiles at a time, as 16-byte entries of
// four numbers. The list of query tiles 2 p and 2 p + 1 of mask m begins at entry (m pairs + p) schedule_stride:
//   entry 0           number of steps, 0, end of the first query tile's steps, begin of the second's
//   entry 1 + 2 s     the two KV tiles of step s
//   entry 2 + 2 s     their codes for the first query tile, then for the second: -1 all live, else a row of fragments
// fragments[128 code + t] has bit i set where thread t of a warpgroup keeps element i of its 64 x 64 accumulator
// (hopper_wgmma.cuh); keys beyond S_k are masked there too. Present on devices of compute capability 9.0 wherever
// row_ptr is.
#pragma once
#include "../common/interface.h"

enum { ATTENTION_TILE = 64 };

struct AttentionArgs {
  const void* q;
  const void* k;
  const void* v;
  const void* bias;
  void* out;
  int64_t q_stride[4];  // in elements: batch, head, row, column
  int64_t k_stride[4];
  int64_t v_stride[4];
  int64_t bias_stride[4];  // batch, head, query row, key
  int64_t out_stride[3];   // batch, head, row
  const int32_t* row_ptr;
  const int32_t* tile_index;
  const int32_t* tile_code;
  const uint64_t* bitmaps;
  int32_t mask_stride_b;
  int32_t mask_stride_h;
  int32_t batch;  // B >= 1
  int32_t heads;  // H >= 1, a multiple of heads_kv
  int32_t heads_kv;
  int32_t seq_q;     // >= 1
  int32_t seq_k;     // >= 1
  int32_t head_dim;  // a multiple of 8 from 32 to 256
  float scale;
  int32_t dtype;       // FusescopeDtype of q, k, v and out
  int32_t bias_dtype;  // FusescopeDtype: FS_FLOAT32 or that of q
  int32_t schedule_stride;
  const int32_t* schedule;
  const uint32_t* fragments;
};
