// Attention of one new query a sequence over a padded KV cache: out = softmax(scale q k^T) v over the first lengths[b]
// keys.
//
//   q (B, H, 1, D)   k, v (B, H_kv, S_max, D), query head h reads KV head h / (H / H_kv)   out (B, H, 1, D), contiguous
//   lengths (B) int32 in device memory, taken as 0 below 0 and as S_max above it. Keys from lengths[b] on are never
//   read; a sequence of length 0 gives zeros.
//
// A CUDA kernel needs fp32 scratch for the parts of sequences that several blocks share, and is called twice: with
// workspace == nullptr it launches nothing and writes how many floats it needs to *workspace_floats. A kernel that
// needs none works at once.
#pragma once
#include "../common/e4m3.h"
#include "../common/interface.h"

struct AttentionDecodeArgs {
  const void* q;
  const void* k;
  const void* v;
  const int32_t* lengths;
  void* out;
  float* workspace;           // 16-byte aligned, contents undefined
  int64_t* workspace_floats;  // host memory
  int64_t q_stride[3];        // in elements: batch, head, column
  int64_t k_stride[4];        // batch, head, row, column
  int64_t v_stride[4];
  int32_t batch;  // B >= 1
  int32_t heads;  // H >= 1, a multiple of heads_kv
  int32_t heads_kv;
  int32_t seq_max;   // S_max >= 1
  int32_t head_dim;  // a multiple of 8 from 32 to 256
  float scale;
  int32_t dtype;  // FusescopeDtype of q and out, and of k and v; with kE4m3Cache those are e4m3
};

inline const char* refuse_e4m3(const AttentionDecodeArgs& a) {
  return a.dtype & kE4m3Cache ? "unsupported: a cache of float8_e4m3fn (the CPU kernel and v4_cluster take it)"
                              : nullptr;
}
