// Scores and contexts of one warp of v3 over units of 16 keys, with up to 16 queries as the rows of both products.
#pragma once
#include "added_scores.cuh"
#include "stream.cuh"

namespace decode {
// What a lane holds of an item: rows quad and quad + 8 of 16, in the layout of mma. Biased: whether something is added
// to scores.
template <typename T, int Width, bool Biased> struct Rows {
  static constexpr int Steps = Width / 16;
  using Unit = Units<Biased>;
  using Added = std::conditional_t<Biased, AddedScores<T, 2, 4>, NothingAdded>;
  static constexpr bool Shared = Width > 128;  // queries are in shared memory: in registers 60 to 468 bytes spilled
  uint32_t query[Shared ? 1 : Steps][4];
  char* queries;  // of the block, as a unit is laid out
  float maximum[2], sum[2], out[Width / 8][4];
  int low[2], high[2];  // keys that a row sees: low <= key < high

  __device__ __forceinline__ void begin(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g,
                                        const Place& work, int blocks, bool pairs) {
    const int quad = threadIdx.x % 32 / 4, pair = threadIdx.x % 4, head = work.item / blocks * group_of(a);
    if constexpr (Shared) __syncthreads();  // what is there has been read
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = work.item % blocks * kRows + quad + 8 * h, token = row % g.tokens;
      const bool inside = row < all_rows(a, g);
      const T* from = static_cast<const T*>(a.q) + work.b * a.q_stride[0] + (head + row / g.tokens) * a.q_stride[1] +
                      token * g.q_token;
      high[h] = work.span.length - g.tokens + 1 + token;
      low[h] = g.window ? high[h] - g.window : 0;
#pragma unroll
      for (int s = 0; s < Steps; ++s)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (Shared && s % kWarps != threadIdx.x / 32) continue;
          const int column = 16 * s + 2 * pair + 8 * e;
          const uint32_t two = query_pair(from, a.q_stride[2], column, inside && column < a.head_dim, pairs);
          if constexpr (Shared)
            *reinterpret_cast<uint32_t*>(queries + place<Width>(quad + 8 * h, 2 * s + e) + 4 * pair) = two;
          else
            query[s][2 * e + h] = two;
        }
      maximum[h] = -INFINITY, sum[h] = 0.f;
    }
#pragma unroll
    for (int n = 0; n < Width / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) out[n][e] = 0.f;
    if constexpr (Shared) __syncthreads();
  }

  // What is added to the scores of the lane's rows: where it is, then that of the unit from key `first` on.
  __device__ __forceinline__ void begin_added(Added& added, const AttentionDecodeArgs& a,
                                              const AttentionDecodeGeneral& g, const Place& work, int blocks) const {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      added.begin(a, g, work.b, work.item / blocks, h, work.item % blocks * kRows + int(threadIdx.x % 32) / 4 + 8 * h);
  }
  __device__ __forceinline__ void load_added(Added& added, int first) const {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = first + 8 * n + 2 * int(threadIdx.x % 4) + e % 2, h = e / 2;
        added.load(h, 2 * n + e % 2, key, key >= low[h] && key < high[h]);
      }
  }

  // score[n][e]: row quad + 8 (e / 2), key first + 8 n + 2 pair + e % 2, in Units; -inf where it is not seen.
  __device__ __forceinline__ void scores(float (&score)[2][4], const char* keys, const AttentionDecodeArgs& a,
                                         const AttentionDecodeGeneral& g, int first, bool present,
                                         const Added& added) const {
    const int lane = threadIdx.x % 32;
    float part[2][2][4] = {};  // even and odd steps apart, so that products wait less for one another
#pragma unroll
    for (int s = 0; s < Steps; ++s) {
      uint32_t key[4];
      tensor_core::ldmatrix_x4(
          key, tensor_core::shared_address(keys + place<Width>(lane % 8 + 8 * (lane / 16), 2 * s + (lane / 8) % 2)));
      if constexpr (Shared) {
        uint32_t own[4];
        tensor_core::ldmatrix_x4(own,
                                 tensor_core::shared_address(queries + place<Width>(lane % 16, 2 * s + lane / 16)));
        tensor_core::mma_m16n8k16<T>(part[s % 2][0], own, {key[0], key[1]});
        tensor_core::mma_m16n8k16<T>(part[s % 2][1], own, {key[2], key[3]});
      } else {
        tensor_core::mma_m16n8k16<T>(part[s % 2][0], query[s], {key[0], key[1]});
        tensor_core::mma_m16n8k16<T>(part[s % 2][1], query[s], {key[2], key[3]});
      }
    }
    const float scale = g.softcap > 0.f ? a.scale / g.softcap : a.scale * Unit::of_score;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) score[n][e] = (part[0][n][e] + part[1][n][e]) * scale;
    if (g.softcap > 0.f) {
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) score[n][e] = g.softcap * Unit::of_score * tanhf(score[n][e]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = first + 8 * n + 2 * (lane % 4) + e % 2;
        if constexpr (Biased) score[n][e] = added.to(score[n][e], e / 2, 2 * n + e % 2, key + 1 - high[e / 2]);
        if (!present || key < low[e / 2] || key >= high[e / 2]) score[n][e] = -INFINITY;
      }
  }

  // Online softmax over the four lanes of a row: scores become weights. The maximum is raised only when it grows by
  // more than 2^8: sums and contexts stay in range, and most steps need no rescaling.
  __device__ __forceinline__ void weigh(float (&score)[2][4]) {
    float shrink[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = fmaxf(fmaxf(score[0][2 * h], score[0][2 * h + 1]), fmaxf(score[1][2 * h], score[1][2 * h + 1]));
      top = fmaxf(top, __shfl_xor_sync(kAll, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAll, top, 2));
      const bool raise = top > maximum[h] + Unit::of_raise || maximum[h] == -INFINITY;
      const float next = raise ? top : maximum[h];
      const float base = next == -INFINITY ? 0.f : next;  // -inf minus -inf would be NaN
      shrink[h] = raise ? Unit::weight(maximum[h] - base) : 1.f;
      maximum[h] = next;
      float total = 0.f;
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) total += score[n][2 * h + e] = Unit::weight(score[n][2 * h + e] - base);
      sum[h] = sum[h] * shrink[h] + total;
    }
    if (shrink[0] == 1.f && shrink[1] == 1.f) return;
#pragma unroll
    for (int n = 0; n < Width / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) out[n][e] *= shrink[e / 2];
  }

  __device__ __forceinline__ void add(const float (&weight)[2][4], const char* values) {
    const int lane = threadIdx.x % 32;
    const uint32_t weights[4] = {
        tensor_core::pack<T>(weight[0][0], weight[0][1]), tensor_core::pack<T>(weight[0][2], weight[0][3]),
        tensor_core::pack<T>(weight[1][0], weight[1][1]), tensor_core::pack<T>(weight[1][2], weight[1][3])};
#pragma unroll
    for (int n = 0; n < Width / 16; ++n) {
      uint32_t value[4];
      tensor_core::ldmatrix_x4_trans(value,
                                     tensor_core::shared_address(values + place<Width>(lane % 16, 2 * n + lane / 16)));
      tensor_core::mma_m16n8k16<T>(out[2 * n], weights, {value[0], value[1]});
      tensor_core::mma_m16n8k16<T>(out[2 * n + 1], weights, {value[2], value[3]});
    }
  }

  // Tells add_to_seeing() the keys that the bias masks.
  __device__ __forceinline__ void mark(float (&weight)[2][4], const Added& added) const {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (added.masks(e / 2, 2 * n + e % 2)) weight[n][e] = kMasked;
  }

  // The same key by key, each for the rows that see it: weight 0 times a NaN or an infinity would be NaN. first: the
  // unit's first key.
  __device__ __forceinline__ void add_to_seeing(const float (&weight)[2][4], const char* values, int first) {
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int key = 0; key < kUnitKeys; ++key) {
      float here[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float even = key < 8 ? weight[0][2 * h] : weight[1][2 * h];
        const float odd = key < 8 ? weight[0][2 * h + 1] : weight[1][2 * h + 1];
        here[h] = __shfl_sync(kAll, key % 2 ? odd : even, lane / 4 * 4 + key % 8 / 2);
      }
#pragma unroll
      for (int n = 0; n < Width / 8; ++n) {
        const T* const two = reinterpret_cast<const T*>(values + place<Width>(key, n)) + 2 * (lane % 4);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (first + key >= low[e / 2] && first + key < high[e / 2] && (!Biased || here[e / 2] != kMasked))
            out[n][e] = fmaf(here[e / 2], to_float(two[e % 2]), out[n][e]);
      }
    }
  }

  // Puts rows 8 h ... 8 h + 7 into the warp's part of the storage.
  __device__ __forceinline__ void put(MergeStorage<Width>& storage, int h) {
    const int quad = threadIdx.x % 32 / 4, pair = threadIdx.x % 4, warp = threadIdx.x / 32;
    float total = sum[h];
    total += __shfl_xor_sync(kAll, total, 1);
    total += __shfl_xor_sync(kAll, total, 2);
#pragma unroll
    for (int n = 0; n < Width / 8; ++n)
      *reinterpret_cast<float2*>(&storage.context[warp][quad][8 * n + 2 * pair]) =
          make_float2(out[n][2 * h], out[n][2 * h + 1]);
    if (pair == 0) {
      storage.maximum[warp][quad] = maximum[h];
      storage.sum[warp][quad] = total;
    }
  }
};
}  // namespace decode
