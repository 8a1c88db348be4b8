// Scores and contexts of one warp over units of an fp8 cache: QueryColumns with e4m3 as the rows of both products.
//
// e4m3 becomes fp16 in registers, which is exact, so both products are of fp16. A 32-bit word that ldmatrix gives holds
// four bytes, and columns are permuted so that these are what a lane's fragment takes:
//   K    four columns of a key, 4t ... 4t + 3 of 16: they count as columns 2t, 2t + 1, 2t + 8 and 2t + 9 of the
//        product, of the queries too
//   V    transposed: columns 2g and 2g + 1 of the keys 2t and 2t + 1. One byte permutation makes pairs of keys; the
//        columns count as rows g and g + 8 of the product, so a lane's two contexts are neighbours
// The scale of K's head is a factor of scores, that of V's of the final division.
//
// Queries in bf16 become fp16 too, each times the power of 2 that brings its largest element to 2^14: fp16 then holds
// every element down to 2^-28 of it in full, and smaller ones to 2^-39 of it, which fp32 sums do not see.
#pragma once
#include "byte_rows.cuh"
#include "query_columns.cuh"

namespace decode {
template <typename T, int Width, int Eights, bool Biased> struct ByteColumns : QueryColumns<T, Width, Eights, Biased> {
  using Base = QueryColumns<T, Width, Eights, Biased>;
  using Base::query, Base::out, Base::low, Base::high;
  static constexpr int Steps = Base::Steps;
  float factor[Eights][2];  // of a query column's scores

  __device__ __forceinline__ void load(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g, int b,
                                       int head_kv, int first_row, bool pairs) {
    const int quad = threadIdx.x % 32 / 4, four = threadIdx.x % 4 * 4;
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
          const int column = 16 * s + four + 2 * e;
          query[s][n][e] = query_pair(from, a.q_stride[2], column, inside && column < a.head_dim, pairs);
        }
    }
  }

  __device__ __forceinline__ void begin(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g, int first_row,
                                        int length, float k_scale) {
    Base::begin(g, first_row, length);
    const float scale = k_scale * (g.softcap > 0.f ? a.scale / g.softcap : a.scale * Base::Unit::of_score);
#pragma unroll
    for (int n = 0; n < Eights; ++n) {
      factor[n][0] = factor[n][1] = scale;
      if constexpr (!std::is_same_v<T, __half>) to_half(n);
    }
  }

  // The bf16 queries of 8 columns as fp16.
  __device__ __forceinline__ void to_half(int n) {
    unsigned most = 0;
#pragma unroll
    for (int s = 0; s < Steps; ++s)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const unsigned two = query[s][n][e], first = two & 0x7fffu, second = two >> 16 & 0x7fffu;
        most = first > most ? first : most;
        most = second > most ? second : most;
      }
#pragma unroll
    for (int d = 1; d < 4; d *= 2) {  // the lanes of a query
      const unsigned other = __shfl_xor_sync(kAll, most, d);
      most = other > most ? other : most;
    }
    const unsigned wanted = 127 + 14 + 127 - (most >> 7), exponent = wanted < 253 ? wanted : 253;
    const float up = __uint_as_float(exponent << 23), down = __uint_as_float((254 - exponent) << 23);
#pragma unroll
    for (int s = 0; s < Steps; ++s)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const unsigned two = query[s][n][e];
        query[s][n][e] =
            tensor_core::pack<__half>(__uint_as_float(two << 16) * up, __uint_as_float(two & 0xffff0000u) * up);
      }
#pragma unroll
    for (int c = 0; c < 2; ++c) factor[n][c] *= __shfl_sync(kAll, down, 4 * (threadIdx.x % 4 * 2 + c));
  }

  // As of the base, columns of the product permuted.
  __device__ __forceinline__ void scores(float (&score)[Eights][4], const char* keys, const AttentionDecodeArgs&,
                                         const AttentionDecodeGeneral& g, int first, bool present,
                                         const typename Base::Added& added) const {
    const int lane = threadIdx.x % 32;
    float part[2][Eights][4] = {};  // even and odd steps apart, so that products wait less for one another
#pragma unroll
    for (int s = 0; s < Steps; s += 2) {
      uint32_t word[4];
      tensor_core::ldmatrix_x4(word, tensor_core::shared_address(keys + place<Width / 2>(lane % 16, s + lane / 16)));
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        uint32_t upper[2], lower[2];
        e4m3_to_half(word[2 * h], upper);
        e4m3_to_half(word[2 * h + 1], lower);
#pragma unroll
        for (int n = 0; n < Eights; ++n)
          tensor_core::mma_m16n8k16<__half>(part[h][n], {upper[0], lower[0], upper[1], lower[1]}, query[s + h][n]);
      }
    }
#pragma unroll
    for (int n = 0; n < Eights; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) score[n][i] = (part[0][n][i] + part[1][n][i]) * factor[n][i % 2];
    if (g.softcap > 0.f) {
#pragma unroll
      for (int n = 0; n < Eights; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) score[n][i] = g.softcap * Base::Unit::of_score * tanhf(score[n][i]);
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

  // out[s][n][i]: column of V 16 s + 2 (lane / 4) + i / 2.
  __device__ __forceinline__ void add(const float (&weight)[Eights][4], const char* values) {
    const int lane = threadIdx.x % 32;
    uint32_t turned[Eights][2];
#pragma unroll
    for (int n = 0; n < Eights; ++n)
#pragma unroll
      for (int k = 0; k < 2; ++k)
        turned[n][k] = tensor_core::transposed(tensor_core::pack<__half>(weight[n][2 * k], weight[n][2 * k + 1]));
#pragma unroll
    for (int s = 0; s < Steps; s += 2) {
      uint32_t word[4];
      tensor_core::ldmatrix_x4_trans(word,
                                     tensor_core::shared_address(values + place<Width / 2>(lane % 16, s + lane / 16)));
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        uint32_t first[2], second[2];  // of keys 0 ... 7 and 8 ... 15
        e4m3_to_half(__byte_perm(word[2 * h], 0, 0x3120), first);
        e4m3_to_half(__byte_perm(word[2 * h + 1], 0, 0x3120), second);
#pragma unroll
        for (int n = 0; n < Eights; ++n)
          tensor_core::mma_m16n8k16<__half>(out[s + h][n], {first[0], first[1], second[0], second[1]}, turned[n]);
      }
    }
  }

  static __device__ __forceinline__ bool spoilt(const char* values) { return holds_nan<Width>(values); }

  // The same key by key, each for the queries that see it.
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
          const E4m3* const row = reinterpret_cast<const E4m3*>(values + place<Width / 2>(key, s));
          const float value = to_float(row[lane / 4 * 2 + half]);
#pragma unroll
          for (int n = 0; n < Eights; ++n)
#pragma unroll
            for (int c = 0; c < 2; ++c)
              if (first + key >= low[n][c] && first + key < high[n][c] && (!Biased || here[n][c] != kMasked))
                out[s][n][2 * half + c] = fmaf(here[n][c], value, out[s][n][2 * half + c]);
        }
    }
  }
};
}  // namespace decode
