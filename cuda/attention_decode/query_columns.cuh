// Scores and contexts of one warp with keys as the rows of a product and queries as its columns: S^T = K Q^T and
// O^T = V^T P^T.
//
// mma has 16 rows and 8 columns. Decoding has few queries per KV head, so queries as rows leave most of a product idle;
// as columns, up to 8 of them take half the products, accumulators and exponentials that 16 rows do. The weights leave
// the first product as rows of keys and enter the second as rows of keys too, but with a lane's elements side by side
// along the keys: one movmatrix per 8 keys and 8 queries turns them.
#pragma once
#include "../common/exp2.cuh"
#include "../common/movmatrix.cuh"
#include "added_scores.cuh"
#include "stream.cuh"

namespace decode {
// What a lane holds of an item; columns 8 n + 2 (lane % 4) and the next of its 8 Eights. Biased: whether something is
// added to scores.
template <typename T, int Width, int Eights, bool Biased> struct QueryColumns {
  static constexpr int Steps = Width / 16;
  using Unit = Units<Biased>;
  using Added = std::conditional_t<Biased, AddedScores<T, 2 * Eights, 2>, NothingAdded>;
  uint32_t query[Steps][Eights][2];
  float out[Steps][Eights][4];  // [s][n][i]: column of V 16 s + lane / 4 + 8 (i / 2), query column + i % 2
  float maximum[Eights][2], sum[Eights][2];
  int low[Eights][2], high[Eights][2];  // keys that a query sees: low <= key < high

  // Loads the queries of the item. pairs: whether two neighbouring elements are one aligned word.
  __device__ __forceinline__ void load(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g, int b,
                                       int head_kv, int first_row, bool pairs) {
    const int quad = threadIdx.x % 32 / 4, pair = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < Eights; ++n) {
      const int row = first_row + 8 * n + quad, head = head_kv * group_of(a) + (g.tokens == 1 ? row : row / g.tokens);
      const bool inside = row < all_rows(a, g);
      const T* from = static_cast<const T*>(a.q) + b * a.q_stride[0] + head * a.q_stride[1];
      if (g.tokens > 1) from += row % g.tokens * g.q_token;
#pragma unroll
      for (int s = 0; s < Steps; ++s)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int column = 16 * s + 8 * e + 2 * pair;
          query[s][n][e] = query_pair(from, a.q_stride[2], column, inside && column < a.head_dim, pairs);
        }
    }
  }

  // The same from a unit whose rows are the queries.
  __device__ __forceinline__ void read(const char* unit) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < Eights; ++n)
#pragma unroll
      for (int s = 0; s < Steps; s += 2) {
        uint32_t two[4];
        tensor_core::ldmatrix_x4(two,
                                 tensor_core::shared_address(unit + place<Width>(8 * n + lane % 8, 2 * s + lane / 8)));
        query[s][n][0] = two[0], query[s][n][1] = two[1], query[s + 1][n][0] = two[2], query[s + 1][n][1] = two[3];
      }
  }

  __device__ __forceinline__ void begin(const AttentionDecodeGeneral& g, int first_row, int length) {
#pragma unroll
    for (int n = 0; n < Eights; ++n)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int row = first_row + 8 * n + 2 * int(threadIdx.x % 4) + c, token = g.tokens == 1 ? 0 : row % g.tokens;
        high[n][c] = length - g.tokens + 1 + token;
        low[n][c] = g.window ? high[n][c] - g.window : 0;
        maximum[n][c] = -INFINITY, sum[n][c] = 0.f;
      }
#pragma unroll
    for (int s = 0; s < Steps; ++s)
#pragma unroll
      for (int n = 0; n < Eights; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) out[s][n][i] = 0.f;
  }

  // What is added to the scores of the lane's columns: where it is, then that of the unit from key `first` on.
  __device__ __forceinline__ void begin_added(Added& added, const AttentionDecodeArgs& a,
                                              const AttentionDecodeGeneral& g, int b, int head_kv,
                                              int first_row) const {
#pragma unroll
    for (int r = 0; r < 2 * Eights; ++r)
      added.begin(a, g, b, head_kv, r, first_row + 8 * (r / 2) + 2 * int(threadIdx.x % 4) + r % 2);
  }
  __device__ __forceinline__ void load_added(Added& added, int first) const {
#pragma unroll
    for (int n = 0; n < Eights; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first + int(threadIdx.x % 32) / 4 + 8 * (i / 2), c = i % 2;
        added.load(2 * n + c, i / 2, key, key >= low[n][c] && key < high[n][c]);
      }
  }

  // score[n][i]: key first + lane / 4 + 8 (i / 2), query column + i % 2, in Units; -inf where it is not seen.
  __device__ __forceinline__ void scores(float (&score)[Eights][4], const char* keys, const AttentionDecodeArgs& a,
                                         const AttentionDecodeGeneral& g, int first, bool present,
                                         const Added& added) const {
    const int lane = threadIdx.x % 32;
    float part[2][Eights][4] = {};  // even and odd steps apart, so that products wait less for one another
#pragma unroll
    for (int s = 0; s < Steps; ++s) {
      uint32_t key[4];
      tensor_core::ldmatrix_x4(key, tensor_core::shared_address(keys + place<Width>(lane % 16, 2 * s + lane / 16)));
#pragma unroll
      for (int n = 0; n < Eights; ++n) tensor_core::mma_m16n8k16<T>(part[s % 2][n], key, query[s][n]);
    }
    const float scale = g.softcap > 0.f ? a.scale / g.softcap : a.scale * Unit::of_score;
#pragma unroll
    for (int n = 0; n < Eights; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) score[n][i] = (part[0][n][i] + part[1][n][i]) * scale;
    if (g.softcap > 0.f) {
#pragma unroll
      for (int n = 0; n < Eights; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) score[n][i] = g.softcap * Unit::of_score * tanhf(score[n][i]);
    }
#pragma unroll
    for (int n = 0; n < Eights; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first + lane / 4 + 8 * (i / 2);
        if constexpr (Biased) score[n][i] = added.to(score[n][i], 2 * n + i % 2, i / 2, key + 1 - high[n][i % 2]);
        if (!present || key < low[n][i % 2] || key >= high[n][i % 2]) score[n][i] = -INFINITY;
      }
  }

  // Scores become weights. The maximum follows only jumps above 2^8, so sums and contexts stay in range and most steps
  // find by one vote that there is nothing to rescale. A lane sums its own keys; total() adds the lanes.
  __device__ __forceinline__ void weigh(float (&score)[Eights][4]) {
    bool above = false;
#pragma unroll
    for (int n = 0; n < Eights; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) above = above || score[n][i] > maximum[n][i % 2] + Unit::of_raise;
    if (__any_sync(kAll, above)) raise(score);
#pragma unroll
    for (int n = 0; n < Eights; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float base = maximum[n][i % 2] == -INFINITY ? 0.f : maximum[n][i % 2];  // -inf minus -inf would be NaN
        sum[n][i % 2] += score[n][i] = Unit::weight(score[n][i] - base);
      }
  }

  __device__ __forceinline__ void raise(const float (&score)[Eights][4]) {
#pragma unroll
    for (int n = 0; n < Eights; ++n)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float top = fmaxf(score[n][c], score[n][2 + c]);
#pragma unroll
        for (int d = 4; d < 32; d *= 2) top = fmaxf(top, __shfl_xor_sync(kAll, top, d));  // the lanes of a column
        if (!(top > maximum[n][c] + Unit::of_raise)) continue;
        const float shrink = Unit::weight(maximum[n][c] - top);
        maximum[n][c] = top;
        sum[n][c] *= shrink;
#pragma unroll
        for (int s = 0; s < Steps; ++s) out[s][n][c] *= shrink, out[s][n][2 + c] *= shrink;
      }
  }

  __device__ __forceinline__ void add(const float (&weight)[Eights][4], const char* values) {
    const int lane = threadIdx.x % 32;
    uint32_t turned[Eights][2];
#pragma unroll
    for (int n = 0; n < Eights; ++n)
#pragma unroll
      for (int k = 0; k < 2; ++k)
        turned[n][k] = tensor_core::transposed(tensor_core::pack<T>(weight[n][2 * k], weight[n][2 * k + 1]));
#pragma unroll
    for (int s = 0; s < Steps; ++s) {
      uint32_t value[4];
      tensor_core::ldmatrix_x4_trans(
          value, tensor_core::shared_address(values + place<Width>(lane % 8 + 8 * (lane / 16), 2 * s + lane / 8 % 2)));
#pragma unroll
      for (int n = 0; n < Eights; ++n) tensor_core::mma_m16n8k16<T>(out[s][n], value, turned[n]);
    }
  }

  static __device__ __forceinline__ bool spoilt(const char* values) { return holds_non_finite<T, Width>(values); }

  // Tells add_to_seeing() the keys that the bias masks.
  __device__ __forceinline__ void mark(float (&weight)[Eights][4], const Added& added) const {
#pragma unroll
    for (int n = 0; n < Eights; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (added.masks(2 * n + i % 2, i / 2)) weight[n][i] = kMasked;
  }

  // The same key by key, each for the queries that see it: weight 0 times a NaN or an infinity would be NaN. first: the
  // unit's first key.
  __device__ __forceinline__ void add_to_seeing(const float (&weight)[Eights][4], const char* values, int first) {
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int key = 0; key < kUnitKeys; ++key) {
      float here[Eights][2];
#pragma unroll
      for (int n = 0; n < Eights; ++n)
#pragma unroll
        for (int c = 0; c < 2; ++c)
          here[n][c] = __shfl_sync(kAll, key < 8 ? weight[n][c] : weight[n][2 + c], key % 8 * 4 + lane % 4);
#pragma unroll
      for (int s = 0; s < Steps; ++s)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float value = to_float(reinterpret_cast<const T*>(values + place<Width>(key, 2 * s + half))[lane / 4]);
#pragma unroll
          for (int n = 0; n < Eights; ++n)
#pragma unroll
            for (int c = 0; c < 2; ++c)
              if (first + key >= low[n][c] && first + key < high[n][c] && (!Biased || here[n][c] != kMasked))
                out[s][n][2 * half + c] = fmaf(here[n][c], value, out[s][n][2 * half + c]);
        }
    }
  }

  // The sum of a column over all lanes' keys.
  __device__ __forceinline__ float total(int n, int c) const {
    float all = sum[n][c];
#pragma unroll
    for (int d = 4; d < 32; d *= 2) all += __shfl_xor_sync(kAll, all, d);
    return all;
  }
};
}  // namespace decode
