// One step of a warpgroup, 64 query rows against a KV tile in shared memory: Q K^T, online softmax, P V.
#pragma once
#include <cfloat>

#include "../common/exp2.cuh"
#include "../common/mma.cuh"
#include "shared.cuh"

namespace fp8 {

// threadIdx.x, read here and now: what follows from it in code that seldom runs takes no registers elsewhere.
__device__ __forceinline__ int thread_here() {
#if defined(__CUDA_ARCH__)
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
#else
  return threadIdx.x;  // emulated on a CPU
#endif
}

// State of a tile of 64 query rows; each thread holds two rows, as wgmma's accumulators do.
template <int D> struct Rows {
  // Weights are 2^(score - reference), in e4m3, whose normal numbers go from 2^-6 to 448. The reference is 2^kTop below
  // an earlier row maximum, so weights stay below 2^8 until scores grow by 4 over that, and those above 2^-10 of it are
  // normal numbers. kNoKey before the row's first live key, where any weight is infinite.
  static constexpr float kNoKey = -3e38f, kTop = 4.f;

  static constexpr int kAccumulators = D / 2 + 4;
  // Context, not divided by the sums of the rows, which follow it. The tensor cores add products of 8 bits with 14 bits
  // of accuracy (NOTES.md), so part is a sum over kTogether steps, and these are added in fp32, in shared memory.
  static constexpr int kTogether = 16;
  float part[kAccumulators];
  float reference[2];
  float4* kept;   // this thread's sums of earlier steps, 128 apart
  int steps = 0;  // in part
  bool has_kept = false;

  __device__ __forceinline__ explicit Rows(float4* kept) : kept(kept) {}
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (float& x : part) x = 0.f;
#pragma unroll
    for (int r = 0; r < 2; ++r) reference[r] = kNoKey;
    steps = 0;
    has_kept = false;
  }
  __device__ __forceinline__ float sum(int r) const { return part[D / 2 + 2 * r]; }

  // Calls body(four accumulators, where they are kept).
  template <typename Body> __device__ __forceinline__ void each_four(Body body) {
#pragma unroll
    for (int i = 0; i < kAccumulators / 4; ++i) body(part + 4 * i, kept[i * 128]);
  }
  // A step has been added to part.
  __device__ __forceinline__ void count() {
    if (++steps < kTogether) return;
    if (has_kept)
      each_four([](const float* x, float4& to) { to = {to.x + x[0], to.y + x[1], to.z + x[2], to.w + x[3]}; });
    else
      each_four([](const float* x, float4& to) { to = {x[0], x[1], x[2], x[3]}; });
    has_kept = true;
    steps = 0;
  }
  // All steps in part.
  __device__ __forceinline__ void total() {
    if (!has_kept) return;
    const float factor = steps > 0 ? 1.f : 0.f;
    each_four([=](float* x, const float4& from) {
      x[0] = x[0] * factor + from.x, x[1] = x[1] * factor + from.y;
      x[2] = x[2] * factor + from.z, x[3] = x[3] * factor + from.w;
    });
  }

  // x = q k^T
  static __device__ __forceinline__ void start_scores(float (&x)[32], uint64_t q, uint64_t k) {
    hopper::fence_registers(x);
    hopper::wgmma_fence();
#pragma unroll
    for (int i = 0; i < D / 32; ++i)
      hopper::wgmma_fp8(x, hopper::moved_descriptor(q, i * hopper::kStepBytes),
                        hopper::moved_descriptor(k, i * hopper::kStepBytes), i > 0);
    hopper::wgmma_commit();
  }

  // part = [part +] weights v
  __device__ __forceinline__ void start_context(const uint32_t (&weights)[2][4], uint64_t v) {
    hopper::fence_registers(part);
    hopper::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 2; ++i)
      hopper::wgmma_fp8(part, weights[i], hopper::moved_descriptor(v, i * hopper::kStepBytes), i > 0 || steps > 0);
    hopper::wgmma_commit();
  }

  // Recomputes the scores of this warp's 16 rows by mma.sync (wgmma would need the whole warpgroup) from the tiles q
  // and k.
  static __device__ __forceinline__ void recompute_scores(float (&x)[32], const uint8_t* q, const uint8_t* k) {
    const int thread = thread_here(), lane = thread % 32, q_row = 16 * (thread / 32 % 4) + lane % 16;
#pragma unroll
    for (int i = 0; i < 32; ++i) x[i] = 0.f;
#pragma unroll 1
    for (int i = 0; i < D / 32; ++i) {
      uint32_t a[4];
      tensor_core::ldmatrix_x4(a, hopper::shared_address(q) + swizzled<D>(q_row, 2 * i + lane / 16));
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int k_row = 16 * n + lane % 8 + lane / 16 * 8;
        uint32_t b[4];
        tensor_core::ldmatrix_x4(b, hopper::shared_address(k) + swizzled<D>(k_row, 2 * i + lane / 8 % 2));
#pragma unroll
        for (int j = 0; j < 2; ++j)
          hopper::mma_e4m3_m16n8k32(reinterpret_cast<float (&)[4]>(x[8 * n + 4 * j]), a, {b[2 * j], b[2 * j + 1]});
      }
    }
  }

  // Masks the scores by the live keys of the thread's two rows.
  static __device__ __forceinline__ void mask(float (&x)[32], const uint64_t (&live)[2]) {
    const int t2 = thread_here() % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t half[2] = {uint32_t(live[r] >> t2), uint32_t(live[r] >> 32) >> t2};
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int c = 0; c < 2; ++c)
          if (!(half[j / 4] & (1u << (j % 4 * 8 + c)))) x[4 * j + 2 * r + c] = -INFINITY;
    }
  }

  // Turns scores in x into exponents relative to the reference, after raising it for rows whose weights would reach 2^8
  // and setting it for rows with their first key. The caller rescales the context, and with it the sums, by shrink.
  __device__ __forceinline__ void update_reference(float (&x)[32], float factor, float (&shrink)[2]) {
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
      const bool higher = top >= (first ? -FLT_MAX : 7.5f);
      const float by = higher ? top - kTop : 0.f;
      shrink[r] = first ? 0.f : exp2_approx(-by);
      if (higher) reference[r] = before + by;
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (i / 2 % 2 == r) x[i] -= by;
    }
  }

  __device__ __forceinline__ void rescale(const float (&shrink)[2]) {
#pragma unroll
    for (int i = 0; i < kAccumulators; ++i) part[i] *= shrink[i / 2 % 2];
    if (!has_kept) return;
    each_four([&](const float*, float4& to) {
      to = {to.x * shrink[0], to.y * shrink[0], to.z * shrink[1], to.w * shrink[1]};
    });
  }

  static __device__ __forceinline__ void exponentials(float (&x)[32]) {
#pragma unroll
    for (int i = 0; i < 32; ++i) x[i] = exp2_approx(x[i]);
  }

  // Turns scores in x into weights.
  __device__ __forceinline__ void exponentiate(float (&x)[32], float factor) const {
#pragma unroll
    for (int i = 0; i < 32; ++i) x[i] = exp2_approx(x[i] * factor - reference[i / 2 % 2]);
  }

  // The weights as the left operand of P V (tiles.h has the order of the keys).
  static __device__ __forceinline__ void pack(uint32_t (&weights)[2][4], const float (&x)[32]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int from =
          i / 4 * 16 + i % 4 / 2 * 8 + i % 2 * 2;  // register i % 4 of 32 keys: row i % 2, 16 keys further on
      weights[i / 4][i % 4] = hopper::pack_e4m3(x[from], x[from + 1], x[from + 4], x[from + 5]);
    }
  }

  // Whether a weight is 2^8 or more or NaN.
  static __device__ __forceinline__ bool exceed_ceiling(const uint32_t (&weights)[2][4]) {
    uint32_t any = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) any |= weights[i / 4][i % 4] + 0x08080808u;
    return any & 0x80808080u;
  }
};

}  // namespace fp8
