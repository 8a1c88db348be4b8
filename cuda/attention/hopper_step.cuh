// What one warpgroup does with its 64 query rows and a KV tile that lies in shared memory: scores, softmax, context.
#pragma once
#include "../common/exp2.cuh"
#include "../common/hopper.cuh"
#include "../common/mma.cuh"

namespace hopper {

// Of a tile of 64 query rows, head size 64 Panels at most; each thread holds what wgmma's accumulators give it, two rows.
template <typename T, int Panels> struct Rows {
  float o[32 * Panels];  // the context, not divided by the sums
  float maximum[2];      // of the scores, or a little less (softmax)
  float sum[2];          // of the weights relative to it; the thread's own until total()

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < 32 * Panels; ++i) o[i] = 0.f;
#pragma unroll
    for (int r = 0; r < 2; ++r) maximum[r] = -INFINITY, sum[r] = 0.f;
  }

  // x = q k^T; both lie panel by panel, a tile each.
  static __device__ __forceinline__ void start_scores(float (&x)[32], const uint8_t* q, const uint8_t* k) {
    fence_registers(x);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4 * Panels; ++i) {
      const int panel = i / 4 * kTileBytes;
      wgmma_64x64x16<T>(x, tile_descriptor(q + panel) + (i % 4) * kStepColumns, tile_descriptor(k + panel) + (i % 4) * kStepColumns, i > 0);
    }
    wgmma_commit();
  }

  // o += weights v
  __device__ __forceinline__ void start_context(const uint32_t (&weights)[4][4], const uint8_t* v) {
    fence_registers(o);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (Panels == 1) wgmma_64x64x16<T, 1>(o, weights[i], tile_descriptor(v) + i * kStepRows, true);
      else wgmma_64x128x16<T>(o, weights[i], wide_descriptor(v, v + kTileBytes) + i * kStepRows);
    }
    wgmma_commit();
  }

  static __device__ __forceinline__ void mask(float (&x)[32], uint32_t bits) {
#pragma unroll
    for (int i = 0; i < 32; ++i)
      if (!(bits & (1u << i))) x[i] = -INFINITY;
  }

  // Lets the maximum follow the scores in x; factor: of scores to powers of two. It follows only when it grows by more than a factor of 2^8: sums
  // and context may be that much larger without harm to fp32 sums or 16-bit weights. Where no row of a warp asks for it, as in most
  // steps, nothing has to be exchanged between threads and false is returned; else sums are relative to the new maximum and the context is
  // to be multiplied by shrink.
  __device__ __forceinline__ bool follow(const float (&x)[32], float factor, float (&shrink)[2]) {
    float top[2][2];
#pragma unroll
    for (int i = 0; i < 4; ++i) top[i / 2][i % 2] = x[i];
#pragma unroll
    for (int i = 4; i < 32; ++i) top[i / 2 % 2][i % 2] = fmaxf(top[i / 2 % 2][i % 2], x[i]);
    bool grows = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r][0] = fmaxf(top[r][0], top[r][1]);
      grows |= top[r][0] * factor > maximum[r] * factor + 8.f;
    }
    if (!__any_sync(0xffffffffu, grows)) return false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r][0] = fmaxf(top[r][0], __shfl_xor_sync(0xffffffffu, top[r][0], 1));
      top[r][0] = fmaxf(top[r][0], __shfl_xor_sync(0xffffffffu, top[r][0], 2));
      const bool higher = top[r][0] * factor > maximum[r] * factor + 8.f;
      shrink[r] = higher ? exp2_approx((maximum[r] - top[r][0]) * factor) : 1.f;
      if (higher) maximum[r] = top[r][0];
      sum[r] *= shrink[r];
    }
    return true;
  }

  __device__ __forceinline__ void rescale(const float (&shrink)[2]) {
#pragma unroll
    for (int i = 0; i < 32 * Panels; ++i) o[i] *= shrink[i / 2 % 2];
  }

  // Scores in x to weights in x relative to the maximum, which are added to the sums.
  __device__ __forceinline__ void exponentials(float (&x)[32], float factor) {
    float shift[2], part[2][2] = {};
#pragma unroll
    for (int r = 0; r < 2; ++r) shift[r] = maximum[r] == -INFINITY ? 0.f : maximum[r] * factor;  // no live key so far: weights are exp2(-inf) = 0
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      x[i] = exp2_approx(x[i] * factor - shift[i / 2 % 2]);
      part[i / 2 % 2][i % 2] += x[i];
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) sum[r] += part[r][0] + part[r][1];
  }

  static __device__ __forceinline__ void pack(uint32_t (&weights)[4][4], const float (&x)[32]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) weights[i / 4][i % 4] = tensor_core::pack<T>(x[2 * i], x[2 * i + 1]);
  }

  // The sums of the thread's two rows over all keys.
  __device__ __forceinline__ void total() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
      sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
    }
  }
};

}  // namespace hopper
