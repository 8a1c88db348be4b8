// Rows of a result once more, each by one warp, from the set bits of the mask: what tile kernels do with NaN.
//
// A tile kernel multiplies masked keys with weight 0, and 0 times a NaN or an infinity of v is NaN. So a row without a
// NaN is right, and one with a NaN is computed again from the keys that it sees and no others. Small rather than fast:
// one function that is not inlined, so that it costs the tile kernel no registers, and that gives a row up as soon as
// all of its columns are NaN, because they stay so.
#pragma once
#include "../common/exp2.cuh"
#include "../common/launch.cuh"
#include "rows.cuh"
#include "score.cuh"

namespace row_again {
constexpr unsigned kAll = 0xffffffffu;
constexpr int64_t kEveryKey = int64_t(1) << 32;  // a diagonal
// Log-sum-exp (log2) of a row that is complete: what later parts of the mask add to it has weight 0.
constexpr float kComplete = 3e38f;

// Positions of query rows: position n is row n % length * modulus + n / length (parts.h).
struct Order {
  int modulus = 1, length = 1;
  float* lse = nullptr;  // of every row, to be set to kComplete
  __device__ __forceinline__ int row_of(int position) const {
    return modulus == 1 ? position : position % length * modulus + position / length;
  }
};

__device__ __forceinline__ float sum_of_warp(float x) {
#pragma unroll
  for (int distance = 1; distance < 32; distance <<= 1) x += __shfl_xor_sync(kAll, x, distance);
  return x;
}

// Positions position0 + i, for each bit i of `rows` (the same on every lane). diagonal: of a mask without lists, row r
// sees the first r + diagonal keys. Apart: an instance of its own, for kernels of which only some calls are scored: in
// the others the compiler sees that none is, and leaves that code out.
template <typename T, bool Apart>
__device__ __attribute__((noinline)) void attend(const AttentionArgs& a, AttentionScored scored, int b, int head,
                                                 int position0, unsigned rows, int64_t diagonal, Order order) {
  constexpr int kColumns = 8, kKeys = 2;  // of a lane, 32 apart; at once
  const int lane = threadIdx.x % 32, head_kv = head / (a.heads / a.heads_kv), columns = a.head_dim - lane;
  const T* const k = static_cast<const T*>(a.k) + b * a.k_stride[0] + head_kv * a.k_stride[1] + lane * a.k_stride[3];
  const T* const v = static_cast<const T*>(a.v) + b * a.v_stride[0] + head_kv * a.v_stride[1] + lane * a.v_stride[3];
  __syncwarp();  // what other lanes stored to these rows comes first
  for (; rows; rows &= rows - 1) {
    const int position = position0 + __ffsll(rows) - 1;
    if (position >= a.seq_q) return;
    const int row = order.row_of(position);
    const T* const q = static_cast<const T*>(a.q) + b * a.q_stride[0] + head * a.q_stride[1] + row * a.q_stride[2] +
                       lane * a.q_stride[3];
    const int64_t bias = a.bias ? b * a.bias_stride[0] + head * a.bias_stride[1] + row * a.bias_stride[2] : 0;
    float query[kColumns], context[kColumns] = {}, maximum = -INFINITY, sum = 0.f;
    const ExpressedRow expressed(scored, b, head, row + a.seq_k - a.seq_q);
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      query[c] = 32 * c < columns ? to_float(q[32 * c * a.q_stride[3]]) * a.scale : 0.f;

    // The keys first + position of each set bit.
    auto visit = [&](int first, uint64_t word) {
      while (word) {
        float score[kKeys], value[kKeys][kColumns];
#pragma unroll
        for (int u = 0; u < kKeys; ++u, word &= word - 1) {
          score[u] = word ? 0.f : -INFINITY;
          const int key = word ? first + __ffsll(static_cast<long long>(word)) - 1 : first;
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            value[u][c] = 0.f;
            if (!word || 32 * c >= columns) continue;
            score[u] = fmaf(query[c], to_float(k[key * a.k_stride[2] + 32 * c * a.k_stride[3]]), score[u]);
            value[u][c] = to_float(v[key * a.v_stride[2] + 32 * c * a.v_stride[3]]);
          }
          score[u] = sum_of_warp(score[u]);
          if constexpr (kExpressed) {
            if (word) score[u] = expressed(score[u], key);
            if (score[u] == -INFINITY) {  // which masks its key, as a bias does
#pragma unroll
              for (float& x : value[u]) x = 0.f;
            }
          } else if (word && scored.softcap > 0.f) {
            score[u] = scored.softcap * tanhf(score[u] / scored.softcap);
          }
          if (word && a.bias) {
            const float extra = bias_at(a, bias + key * a.bias_stride[3]);
            score[u] += extra;
            if (extra == -INFINITY) {  // which masks its key, whatever k and v hold there
              score[u] = -INFINITY;
#pragma unroll
              for (float& x : value[u]) x = 0.f;
            }
          }
        }
        float top = maximum;
#pragma unroll
        for (float s : score) top = fmaxf(top, s);
        const float base = top == -INFINITY ? 0.f : top;  // -inf minus -inf would be NaN
        const float shrink = exp2f((maximum - base) * kLog2e);
        maximum = top;
        sum *= shrink;
#pragma unroll
        for (float& x : context) x *= shrink;
#pragma unroll
        for (int u = 0; u < kKeys; ++u) {
          const float weight = exp2f((score[u] - base) * kLog2e);
          sum += weight;
#pragma unroll
          for (int c = 0; c < kColumns; ++c) context[c] = fmaf(weight, value[u][c], context[c]);
        }
      }
      bool lost = true;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) lost &= 32 * c >= columns || context[c] != context[c];
      return !__any_sync(kAll, !lost);
    };
    const int q_tiles = (a.seq_q + ATTENTION_TILE - 1) / ATTENTION_TILE;
    const int64_t list = int64_t(b * a.mask_stride_b + head * a.mask_stride_h) * q_tiles + row / ATTENTION_TILE;
    const int64_t seen = row + diagonal < a.seq_k ? row + diagonal : a.seq_k;
    const int end = a.row_ptr ? a.row_ptr[list + 1] : int((seen + ATTENTION_TILE - 1) / ATTENTION_TILE);
    for (int i = a.row_ptr ? a.row_ptr[list] : 0; i < end; ++i) {
      const int first = (a.row_ptr ? a.tile_index[i] : i) * ATTENTION_TILE, code = a.row_ptr ? a.tile_code[i] : -1;
      const int64_t left = (a.row_ptr ? a.seq_k : seen) - first;
      const uint64_t edge = left < ATTENTION_TILE ? (1ull << left) - 1 : ~0ull;
      if (visit(first, code < 0 ? edge : a.bitmaps[int64_t(code) * ATTENTION_TILE + row % ATTENTION_TILE])) break;
    }

    if (scored.sinks && scored.sinks[head] != -INFINITY) {  // a key more, of value zero
      const float sink = scored.sinks[head], top = fmaxf(maximum, sink), shrink = exp2f((maximum - top) * kLog2e);
      sum = sum * shrink + exp2f((sink - top) * kLog2e);
#pragma unroll
      for (float& x : context) x *= shrink;
    }
    const float inverse = sum == 0.f ? 0.f : 1.f / sum;  // a NaN sum stays NaN
    T* const out = static_cast<T*>(a.out) + b * a.out_stride[0] + head * a.out_stride[1] + row * a.out_stride[2] + lane;
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      if (32 * c < columns) out[32 * c] = from_float<T>(context[c] * inverse);
    if (order.lse && lane == 0) order.lse[(int64_t(b) * a.heads + head) * a.seq_q + row] = kComplete;
  }
}

// The same for the positions whose bit is set in any lane of the warp; broken: this lane's.
template <typename T, bool Apart = false>
__device__ __forceinline__ void attend_broken(const AttentionArgs& a, const AttentionScored& scored, int b, int head,
                                              int position0, unsigned broken, int64_t diagonal = kEveryKey,
                                              Order order = {}) {
  if (!__any_sync(kAll, broken)) return;
#pragma unroll
  for (int distance = 1; distance < 32; distance <<= 1) broken |= __shfl_xor_sync(kAll, broken, distance);
  attend<T, Apart>(a, scored, b, head, position0, broken, diagonal, order);
}
}  // namespace row_again
