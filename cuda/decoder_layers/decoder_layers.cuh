// All layers of a decoder for one new token of every sequence: from the embedded tokens to the last layer's output,
// before the last norm.
//
// A layer, of x (rows x width), one row a sequence:
//   a = norm1(x); q, k, v = a qkv^T + bias, by heads; q and k normed (q_norm, k_norm) and turned (cos_sin)
//   k and v of row r go into the caches at place[r]; context = attention of q over keys 0 ... place[r]
//   x = x + context output^T + bias; b = norm2(x)
//   x = x + act(b first^T + bias) second^T + bias
// A norm with a bias is LayerNorm, without one RMSNorm. SwiGLU: the first half of first's rows are the gate's.
// What is written down between two of these is rounded to the storage type: norms, q, k, v (turned and not), context,
// both sums x, and the activated product (of gate and up each, too). Sums are in fp32. Of matrices in 8 bits a product
// is scale_n * (a . weight_n) + bias_n, the scale in fp32.
#pragma once
#include "../common/eight_bit.h"
#include "../common/interface.h"

enum DecoderActivation { DECODER_GELU_ERF = 0, DECODER_GELU_TANH = 1, DECODER_SWIGLU = 2 };

// Weights are dense, (outputs, terms) of a product; nullptr where there is none of it.
struct DecoderLayer {
  const void *norm1, *norm1_bias;    // width
  const void *qkv, *qkv_bias;        // (heads + 2 kv_heads) head_dim x width
  const void *q_norm, *k_norm;       // head_dim, both or none
  const void *output, *output_bias;  // width x heads head_dim
  const void *norm2, *norm2_bias;    // width
  const void *first, *first_bias;    // ffn x width; SwiGLU: 2 ffn x width, gate then up
  const void *second, *second_bias;  // width x ffn
  const float *qkv_scales, *output_scales, *first_scales, *second_scales;  // of each output; all or none
  void *k_cache, *v_cache;  // (rows, kv_heads, seq_max, head_dim), with the steps of cache_step
};

struct DecoderLayersArgs {
  const void* x;               // rows x width, dense
  void* out;                   // the same, never aliasing an input
  const DecoderLayer* layers;  // `count` of them, in host memory, read before the kernel's function returns
  const float* cos_sin;        // rows x rotary, dense: rotary / 2 cosines, then as many sines; nullptr: nothing turns
  const int64_t* place;        // one per row
  void* workspace;             // workspace_bytes of them, aligned to 256 bytes; holds nothing between calls
  int64_t workspace_bytes;     // decoder_workspace() of the rest
  int64_t cache_step[3];       // elements from one sequence, KV head and key to the next; head_dim are contiguous
  int64_t seq_max;             // 0 <= place[r] < seq_max, else the row is NaN and nothing of it goes into the caches
  int32_t count;               // >= 1
  int32_t rows, width, heads, kv_heads, head_dim, rotary, ffn;  // >= 1; rotary >= 0, even, <= head_dim
  int32_t activation;                                           // DecoderActivation
  float eps;
  int32_t dtype;    // FusescopeDtype of all but matrices with scales, cos_sin, scales and place
  int32_t weights;  // WeightFormat of qkv, output, first and second; kDecoderAsX: of dtype
};

constexpr int32_t kDecoderAsX = -1;
constexpr int kDecoderSplits = 8;  // of a sequence's keys, at most

// Bytes of the largest workspace that a kernel takes: of every layer q, k and v, partial sums of attention, the two
// sums x and the activated product, in fp32 where that is more.
inline int64_t decoder_workspace(const DecoderLayersArgs& a) {
  const int64_t inner = int64_t(a.heads) * a.head_dim, kv = int64_t(a.kv_heads) * a.head_dim;
  const int64_t partial = kDecoderSplits * int64_t(a.heads) * (a.head_dim + 2);
  return 4 * a.rows * a.count * (inner + 2 * kv + partial + 2 * int64_t(a.width) + a.ffn) + 8 * 256;
}
