// What one warpgroup does with its 64 query rows and a KV tile that lies in shared memory: scores, softmax, context.
#pragma once
#include <cfloat>

#include "../common/exp2.cuh"
#include "../common/hopper.cuh"
#include "../common/mma.cuh"

namespace hopper {

// Of a tile of 64 query rows, head size 64 Panels at most; each thread holds what wgmma's accumulators give it, two
// rows.
template <typename T, int Panels> struct Rows {
  // Up to 64 columns the tensor cores sum the weights: V is followed by a tile of ones, of which 8 columns are
  // multiplied too.
  static constexpr bool ones = Panels == 1;

  float o[32 * Panels + (ones ? 4 : 0)];  // the context, not divided by the sums; behind it, with ones, the sums
  // What weights are relative to, in powers of two: kAbove more than a maximum of the row's scores that they exceed by
  // less than 8 so far. Weights are below 2 then, which shows in one of their bits. Of a row that has not had a live
  // key it is kUnseen: any weight is infinite.
  static constexpr float kUnseen = -3e38f, kAbove = 7.f;
  float reference[2];
  float own_sum[2];  // without ones: of the thread's weights until total()

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (float& x : o) x = 0.f;
#pragma unroll
    for (int r = 0; r < 2; ++r) reference[r] = kUnseen, own_sum[r] = 0.f;
  }

  __device__ __forceinline__ float& sum(int r) {
    if constexpr (ones)
      return o[32 * Panels + 2 * r];
    else
      return own_sum[r];
  }
  __device__ __forceinline__ float sum(int r) const { return const_cast<Rows*>(this)->sum(r); }

  // x = q k^T; descriptors of the first panels, the others lie behind.
  static __device__ __forceinline__ void start_scores(float (&x)[32], uint64_t q, uint64_t k) {
    fence_registers(x);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4 * Panels; ++i) {
      const uint32_t on = i / 4 * (kTileBytes >> 4) + i % 4 * uint32_t(kStepColumns);
      wgmma_64x64x16<T>(x, moved_descriptor(q, on), moved_descriptor(k, on), i > 0);
    }
    wgmma_commit();
  }

  // The scores of the warp's own 16 rows once more, by the warp alone (wgmma takes all four of a warpgroup); q and k:
  // the tiles themselves. What x held is multiplied by 0 bit by bit: ptxas 13.0 does not know it for 0, and so does not
  // move the exponentials behind the branch to here.
  static __device__ __forceinline__ void scores_again(float (&x)[32], const uint8_t* q, const uint8_t* k, int nothing) {
    const int lane = threadIdx.x % 32, q_row = 16 * (threadIdx.x / 32 % 4) + lane % 16;
#pragma unroll
    for (float& score : x) score = __int_as_float(__float_as_int(score) & nothing);
#pragma unroll 1
    for (int i = 0; i < 4 * Panels; ++i) {
      const int panel = i / 4 * kTileBytes, chunk = i % 4 * 2;
      uint32_t a[4];
      tensor_core::ldmatrix_x4(a, shared_address(q + panel + q_row * 128 + ((chunk + lane / 16) ^ (q_row & 7)) * 16));
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int k_row = 16 * n + lane % 8 + lane / 16 * 8;
        uint32_t b[4];
        tensor_core::ldmatrix_x4(b,
                                 shared_address(k + panel + k_row * 128 + ((chunk + lane / 8 % 2) ^ (k_row & 7)) * 16));
#pragma unroll
        for (int j = 0; j < 2; ++j)
          tensor_core::mma_m16n8k16<T>(reinterpret_cast<float (&)[4]>(x[8 * n + 4 * j]), a, {b[2 * j], b[2 * j + 1]});
      }
    }
  }

  // The descriptor of the values in slot 0 of a ring of such tiles, and by how much that of the next slot differs.
  static __device__ __forceinline__ uint64_t values_descriptor(const uint8_t* v, const uint8_t* tile_of_ones) {
    if constexpr (ones)
      return wide_descriptor(v, tile_of_ones);
    else
      return wide_descriptor(v, v + kTileBytes);
  }
  static constexpr uint32_t values_slot =
      ones ? uint32_t(kTileBytes >> 4) - (uint32_t(kTileBytes >> 4) << 16) : uint32_t(Panels * kTileBytes >> 4);

  // o += weights v
  __device__ __forceinline__ void start_context(const uint32_t (&weights)[4][4], uint64_t v) {
    fence_registers(o);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (ones)
        wgmma_64x72x16<T>(o, weights[i], moved_descriptor(v, i * uint32_t(kStepRowsAlone)));
      else
        wgmma_64x128x16<T>(o, weights[i], moved_descriptor(v, i * uint32_t(kStepRows)));
    }
    wgmma_commit();
  }

  static __device__ __forceinline__ void mask(float (&x)[32], uint32_t bits) {
#pragma unroll
    for (int i = 0; i < 32; ++i)
      if (!(bits & (1u << i))) x[i] = -INFINITY;
  }

  // Scores in x to the exponents of their weights, relative to the reference, which becomes that of the row's maximum
  // where a weight would be 2 or more or the first of its row; the context is to be multiplied by shrink, as the sums
  // are here.
  __device__ __forceinline__ void follow(float (&x)[32], float factor, float (&shrink)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool first = reference[r] == kUnseen;
      const float before = first ? 0.f : reference[r];
      float top = -INFINITY;
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (i / 2 % 2 == r) top = fmaxf(top, x[i] = x[i] * factor - before);
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      const bool higher = top >= (first ? -FLT_MAX : 1.f);
      const float by = higher ? top + kAbove : 0.f;
      shrink[r] = first ? 0.f : exp2_approx(-by);
      if (higher) reference[r] = before + by;
      own_sum[r] *= shrink[r];
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (i / 2 % 2 == r) x[i] -= by;
    }
  }

  __device__ __forceinline__ void rescale(const float (&shrink)[2]) {
#pragma unroll
    for (int i = 0; i < int(sizeof o / sizeof *o); ++i) o[i] *= shrink[i / 2 % 2];
  }

  // The scores of 32 columns in x to weights in x; part: what they add to the sums, without ones.
  template <int Half> __device__ __forceinline__ void weigh(float (&x)[32], float factor, float (&part)[2]) const {
#pragma unroll
    for (int i = 16 * Half; i < 16 * Half + 16; ++i) x[i] = x[i] * factor - reference[i / 2 % 2];
    exponentials<Half>(x, part);
  }
  template <int Half> static __device__ __forceinline__ void exponentials(float (&x)[32], float (&part)[2]) {
    float sums[2][2] = {};
#pragma unroll
    for (int i = 16 * Half; i < 16 * Half + 16; ++i) {
      x[i] = exp2_approx(x[i]);
      if constexpr (!ones) sums[i / 2 % 2][i % 2] += x[i];
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) part[r] = sums[r][0] + sums[r][1] + (Half ? part[r] : 0.f);
  }
  __device__ __forceinline__ void add(const float (&part)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) own_sum[r] += part[r];
  }

  static __device__ __forceinline__ void pack(uint32_t (&weights)[4][4], const float (&x)[32]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) weights[i / 4][i % 4] = tensor_core::pack<T>(x[2 * i], x[2 * i + 1]);
  }

  // Whether one of the weights is 2 or more, infinite or no number: then, and only then, the highest bit of its
  // exponent is set.
  static __device__ __forceinline__ bool high(const uint32_t (&weights)[4][4]) {
    uint32_t any = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) any |= weights[i / 4][i % 4];
    return any & 0x40004000;
  }

  // The sums of the thread's two rows over all keys.
  __device__ __forceinline__ void total() {
    if constexpr (ones) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      own_sum[r] += __shfl_xor_sync(0xffffffffu, own_sum[r], 1);
      own_sum[r] += __shfl_xor_sync(0xffffffffu, own_sum[r], 2);
    }
  }
};

}  // namespace hopper
