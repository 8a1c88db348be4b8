// One step of a warpgroup, 64 query rows against a KV tile in shared memory: Q K^T, online softmax, P V.
#pragma once
#include <cfloat>

#include "../common/exp2.cuh"
#include "../common/hopper.cuh"
#include "../common/mma.cuh"

namespace hopper {

// State of a tile of 64 query rows, head size up to 64 Panels; each thread holds two rows, as wgmma's accumulators do.
// Natural: scores, references and log-sum-exps are not powers of two but what factor = log2 e makes such: a bias may be
// so near the end of the range of fp32 that factor takes it beyond.
template <typename T, int Panels, bool Natural = false> struct Rows {
  // Up to 64 columns the tensor cores compute the row sums: V is extended by 8 columns of ones.
  static constexpr bool ones = Panels == 1;

  float o[32 * Panels + (ones ? 4 : 0)];  // unnormalised context; with ones, followed by the row sums
  // Weights are 2^(score - reference). The reference is kHeadroom above an earlier row maximum, so weights stay below 2
  // (one exponent bit tells) until scores grow by 8 over that. kNoKey before the row's first live key, where any weight
  // is infinite. Natural, a score may be kNoKey itself: its weight is 1 then, which is right.
  static constexpr float kNoKey = Natural ? -FLT_MAX : -3e38f, kHeadroom = Natural ? 7.f / kLog2e : 7.f;
  float reference[2];
  float thread_sum[2];  // without ones: of this thread's weights, until total()

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (float& x : o) x = 0.f;
#pragma unroll
    for (int r = 0; r < 2; ++r) reference[r] = kNoKey, thread_sum[r] = 0.f;
  }

  __device__ __forceinline__ float& sum(int r) {
    if constexpr (ones)
      return o[32 * Panels + 2 * r];
    else
      return thread_sum[r];
  }
  __device__ __forceinline__ float sum(int r) const { return const_cast<Rows*>(this)->sum(r); }

  // x = q k^T; descriptors of the first panels, which the others follow.
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

  // Recomputes the scores of this warp's 16 rows by mma.sync (wgmma would need the whole warpgroup) from the tiles q
  // and k. zero: 0, but unknown to the compiler: clearing x with it keeps ptxas 13.0 from moving the exponentials that
  // follow the branch into it.
  static __device__ __forceinline__ void recompute_scores(float (&x)[32], const uint8_t* q, const uint8_t* k,
                                                          int zero) {
    const int lane = threadIdx.x % 32, q_row = 16 * (threadIdx.x / 32 % 4) + lane % 16;
#pragma unroll
    for (float& score : x) score = __int_as_float(__float_as_int(score) & zero);
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

  // Descriptor of the values in stage 0 of their ring, and the distance to the next stage's.
  static __device__ __forceinline__ uint64_t values_descriptor(const uint8_t* v, const uint8_t* tile_of_ones) {
    if constexpr (ones)
      return wide_descriptor(v, tile_of_ones);
    else
      return wide_descriptor(v, v + kTileBytes);
  }
  static constexpr uint32_t values_stage =
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

  // Turns scores in x into exponents relative to the reference, after raising it for rows whose weights would reach 2
  // and setting it for rows with their first key. Rescales the sums; the caller rescales the context by shrink.
  __device__ __forceinline__ void update_reference(float (&x)[32], float factor, float (&shrink)[2]) {
    if constexpr (Natural) return update_natural_reference(x, factor, shrink);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool first = reference[r] == kNoKey;
      const float before = first ? 0.f : reference[r];
      float top = -INFINITY;
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (i / 2 % 2 == r) top = fmaxf(top, x[i] = x[i] * factor - before);
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      const bool higher = top >= (first ? -FLT_MAX : 1.f);
      const float by = higher ? top + kHeadroom : 0.f;
      shrink[r] = first ? 0.f : exp2_approx(-by);
      if (higher) reference[r] = before + by;
      thread_sum[r] *= shrink[r];
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (i / 2 % 2 == r) x[i] -= by;
    }
  }

  __device__ __forceinline__ void update_natural_reference(float (&x)[32], float factor, float (&shrink)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = x[2 * r];
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (i / 2 % 2 == r) top = fmaxf(top, x[i]);
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      const float before = reference[r];
      if ((top - before) * factor >= 1.f) reference[r] = top + kHeadroom;
      shrink[r] = exp2_approx((before - reference[r]) * factor);
      thread_sum[r] *= shrink[r];
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (i / 2 % 2 == r) x[i] = (x[i] - reference[r]) * factor;
    }
  }

  __device__ __forceinline__ void rescale(const float (&shrink)[2]) {
#pragma unroll
    for (int i = 0; i < int(sizeof o / sizeof *o); ++i) o[i] *= shrink[i / 2 % 2];
  }

  // Turns the scores of 32 columns in x into weights; part: their sums, without ones.
  template <int Half>
  __device__ __forceinline__ void exponentiate(float (&x)[32], float factor, float (&part)[2]) const {
#pragma unroll
    for (int i = 16 * Half; i < 16 * Half + 16; ++i)
      x[i] = Natural ? (x[i] - reference[i / 2 % 2]) * factor : x[i] * factor - reference[i / 2 % 2];
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
    for (int r = 0; r < 2; ++r) thread_sum[r] += part[r];
  }

  static __device__ __forceinline__ void pack(uint32_t (&weights)[4][4], const float (&x)[32]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) weights[i / 4][i % 4] = tensor_core::pack<T>(x[2 * i], x[2 * i + 1]);
  }

  // Whether a weight is 2 or more, infinite or NaN: exactly then the top bit of its exponent is set.
  static __device__ __forceinline__ bool exceed_ceiling(const uint32_t (&weights)[4][4]) {
    uint32_t any = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) any |= weights[i / 4][i % 4];
    return any & 0x40004000;
  }

  // Reduces the sums of the thread's two rows over the lanes that share them.
  __device__ __forceinline__ void total() {
    if constexpr (ones) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      thread_sum[r] += __shfl_xor_sync(0xffffffffu, thread_sum[r], 1);
      thread_sum[r] += __shfl_xor_sync(0xffffffffu, thread_sum[r], 2);
    }
  }
};

}  // namespace hopper
