// The rows of a QKV product, bias added, taken apart into heads: row (b, s) of qkv holds the heads of q, then k, then
// v, each of head_dim elements side by side; q becomes (batch, heads, seq, head_dim), k and v (batch, kv_heads, seq,
// head_dim), dense. Packed rows (total, heads, head_dim) are the case batch = total, seq = 1.
#pragma once
#include "../common/interface.h"

struct SplitHeadsArgs {
  const void*
      qkv;  // row r = b * seq + s begins at qkv[r * row]; its (heads + 2 kv_heads) * head_dim elements are contiguous
  const void* bias;                               // as many elements as a row, or nullptr for zeros
  void* out;                                      // q, then k, then v, without gaps; never aliasing qkv
  int64_t batch, seq, heads, kv_heads, head_dim;  // >= 1
  int64_t row;                                    // distance between rows in elements, >= 0
  int32_t dtype;                                  // FusescopeDtype of qkv, bias and out
};

// Where element 0 of a head of sequence 0 begins in out, counting the heads of q, k and v on; and how many heads its
// tensor has.
struct HeadPlace {
  int64_t begin, heads;
};

#ifdef __CUDACC__
__host__ __device__
#endif
inline HeadPlace head_place(int64_t head, int64_t batch, int64_t seq, int64_t heads, int64_t kv_heads,
                            int64_t head_dim) {
  const int64_t plane = seq * head_dim, q_size = batch * heads * plane, k_size = batch * kv_heads * plane;
  if (head < heads) return {head * plane, heads};
  head -= heads;
  if (head < kv_heads) return {q_size + head * plane, kv_heads};
  return {q_size + k_size + (head - kv_heads) * plane, kv_heads};
}
