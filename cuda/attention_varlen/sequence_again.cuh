// Rows of a sequence that came out as NaN, computed again as attention on that sequence alone; with a window each row
// as a sequence of its own, of the keys that it sees.
#pragma once
#include "../attention/row_again.cuh"
#include "sequences.cuh"

namespace varlen {
template <typename T> __device__ __attribute__((noinline)) void attend_again(const AttentionVarlenArgs& a,
                                                                             const Work& w, int head, int row0,
                                                                             unsigned broken) {
  AttentionArgs one{};
  one.q = static_cast<const T*>(a.q) + w.q_first * a.q_stride[0];
  one.k = static_cast<const T*>(a.k) + w.k_first * a.k_stride[0];
  one.v = static_cast<const T*>(a.v) + w.k_first * a.v_stride[0];
  one.out = static_cast<T*>(a.out) + int64_t(w.q_first) * a.heads * a.head_dim;
  for (int i = 0; i < 3; ++i) {  // row, head, column of head, row, column
    const int to = i == 2 ? 3 : 2 - i;
    one.q_stride[to] = a.q_stride[i], one.k_stride[to] = a.k_stride[i], one.v_stride[to] = a.v_stride[i];
  }
  one.out_stride[1] = a.head_dim, one.out_stride[2] = int64_t(a.heads) * a.head_dim;
  one.batch = 1, one.heads = a.heads, one.heads_kv = a.heads_kv, one.head_dim = a.head_dim, one.scale = a.scale;
  one.seq_q = w.queries, one.seq_k = w.keys;
  const int64_t diagonal = a.causal ? int64_t(w.keys) - w.queries + 1 : row_again::kEveryKey;
  row_again::attend_broken<T>(one, {}, 0, head, row0, broken, diagonal);
}

template <typename T> __device__ __attribute__((noinline)) void attend_again(const Windowed& a, const Work& w, int head,
                                                                             int row0, unsigned broken) {
#pragma unroll
  for (int distance = 1; distance < 32; distance <<= 1) broken |= __shfl_xor_sync(row_again::kAll, broken, distance);
  for (; broken; broken &= broken - 1) {
    const int row = row0 + __ffsll(broken) - 1;
    if (row >= w.queries) return;
    const int begin = first_of_row(a, w, row), end = keys_of_row(a, w, row);
    const Work one{w.q_first + row, 1, w.k_first + begin, end > begin ? end - begin : 0, 0};
    attend_again<T>(static_cast<const AttentionVarlenArgs&>(a), one, head, 0, 1u);
  }
}

// broken: this lane's of 16 rows from row0 on, as bits; whole warps call it.
template <typename T, typename Args>
__device__ __forceinline__ void attend_broken(const Args& a, const Work& w, int head, int row0, unsigned broken) {
  if (__any_sync(row_again::kAll, broken)) attend_again<T>(a, w, head, row0, broken);
}
}  // namespace varlen
