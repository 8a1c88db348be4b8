// One warpgroup's 64 query rows and a step of 128 keys: scores, softmax and context. The state is arrays of the kernel,
// not a struct of them, for which ptxas 13.0 adds moves.
#pragma once
#include "../common/exp2.cuh"
#include "../common/hopper.cuh"
#include "../common/mma.cuh"
#include "hopper_softmax.cuh"

namespace hopper {

// x = q k^T, of slot s of the keys (hopper_rings.cuh) once they are there.
template <typename T, int Panels>
__device__ __forceinline__ void start_score_product(float (&x)[64], uint8_t* const& q, uint8_t* const& ring, int s,
                                                    uint64_t* const& full, int parity) {
  const uint8_t* k = ring + s * (2 * Panels * kTileBytes);
  barrier_wait(full + s, parity);
  fence_registers(x);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4 * Panels; ++i)
    wgmma_64x128x16<T>(x, tile_descriptor(q + (i / 4) * kTileBytes) + (i % 4) * kStepColumns,
                       tile_descriptor(k + (i / 4) * 2 * kTileBytes) + (i % 4) * kStepColumns, i > 0);
  wgmma_commit();
}

// o += weights v, of slot s of the values once they are there. Up to 64 columns V is followed by a tile of ones, at a
// higher address, whose columns of the product are the sums of the weights.
template <typename T, int Panels, int Accumulators>
__device__ __forceinline__ void start_context_product(float (&o)[Accumulators], const uint32_t (&weights)[8][4],
                                                      uint8_t* const& ring, int s, uint64_t* const& full, int parity,
                                                      uint8_t* const& ones) {
  const uint8_t* v = ring + s * (2 * Panels * kTileBytes);
  barrier_wait(full + s, parity);
  fence_registers(o);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if constexpr (Panels == 1)
      wgmma_64x72x16<T>(o, weights[i], wide_descriptor(v, ones) + i * kStepRowsAlone);
    else
      wgmma_64x128x16<T>(o, weights[i], wide_descriptor(v, v + 2 * kTileBytes) + i * kStepRows);
  }
  wgmma_commit();
}

constexpr float kFar = 1e38f;  // times log2 e it is within the range of fp32

// Scores in x to weights in x; shrink is what sums and context so far are to be multiplied by, true for the whole warp
// where that is not 1. Sum: whether it adds the weights up, as the tensor cores do up to 64 columns. Natural: scores
// may be so near the end of the range of fp32 that factor takes them beyond it (OnlineSoftmax).
template <bool Sum, bool Natural = false> __device__ __forceinline__ bool weigh(float (&x)[64], float factor,
                                                                                float (&maximum)[2], float (&sum)[2],
                                                                                float (&shrink)[2]) {
  float top[2][4];
#pragma unroll
  for (int i = 0; i < 8; ++i) top[i & 2 ? 1 : 0][i / 4 * 2 + (i & 1)] = x[i];
#pragma unroll
  for (int i = 8; i < 64; ++i) {
    float& best = top[i & 2 ? 1 : 0][i / 4 % 2 * 2 + (i & 1)];
    best = fmaxf(best, x[i]);
  }
  bool grows = false;
  float shift[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) top[r][0] = row_maximum(fmaxf(fmaxf(top[r][0], top[r][1]), fmaxf(top[r][2], top[r][3])));
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    // OnlineSoftmax::follow, spelled out: a call of it changes the machine code of split blocks.
    const bool follow =
        (Natural ? (top[r][0] - maximum[r]) * factor > 8.f : top[r][0] * factor > maximum[r] * factor + 8.f) ||
        maximum[r] == -INFINITY;
    const float next = follow ? top[r][0] : maximum[r];
    shift[r] = next == -INFINITY ? 0.f : next * factor;  // no live key so far: every weight is exp2(-inf) = 0
    if constexpr (Natural) {
      const float base = next == -INFINITY ? 0.f : next;
      shrink[r] = follow ? exp2_approx((maximum[r] - base) * factor) : 1.f;
      if (fabsf(base) > kFar) {
        shift[r] = 0.f;
#pragma unroll
        for (int i = 0; i < 32; ++i) x[i / 2 * 4 + 2 * r + i % 2] -= base;
      }
    } else {
      shrink[r] = follow ? exp2_approx(maximum[r] * factor - shift[r]) : 1.f;
    }
    grows |= follow;
    maximum[r] = next;
  }
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i] = exp2_approx(x[i] * factor - shift[i & 2 ? 1 : 0]);
  if constexpr (Sum) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float part[2] = {0.f, 0.f};
#pragma unroll
      for (int i = 0; i < 16; ++i)
#pragma unroll
        for (int c = 0; c < 2; ++c) part[c] += x[4 * i + 2 * r + c];
      sum[r] = sum[r] * shrink[r] + (part[0] + part[1]);
    }
  }
  return __any_sync(0xffffffffu, grows);
}

template <int Accumulators>
__device__ __forceinline__ void rescale(float (&o)[Accumulators], const float (&shrink)[2]) {
#pragma unroll
  for (int i = 0; i < Accumulators; ++i) o[i] *= shrink[(i >> 1) & 1];
}

template <typename T> __device__ __forceinline__ void pack_weights(uint32_t (&weights)[8][4], const float (&x)[64]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) weights[i / 4][i % 4] = tensor_core::pack<T>(x[2 * i], x[2 * i + 1]);
}

// The sums of the weights of the thread's two rows over all keys; with ones, they lie behind the context.
template <int Panels, int Accumulators>
__device__ __forceinline__ void total(float (&sum)[2], const float (&o)[Accumulators]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if constexpr (Panels == 1)
      sum[r] = o[32 + 2 * r];
    else
      sum[r] = row_sum(sum[r]);
  }
}

}  // namespace hopper
