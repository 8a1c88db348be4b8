// Merges (log-sum-exp) the results of warpgroups that each processed some of the keys of the same 64 query rows, in the
// order of the warpgroups.
#pragma once
#include "../common/exp2.cuh"

namespace hopper {

// Bytes of shared memory that merge_parts needs for WG warpgroups.
template <int Columns, int WG> constexpr int kMergeBytes = (WG - 1) * (Columns / 2 + 4) * 128 * 4;

// By all threads of the block. o: accumulators of the context (64 x Columns), not divided by the sums; sum and maximum
// of the thread's two rows; factor: converts maxima to units of log2. False for all warpgroups but the first, which
// then holds the result. Natural: as of weigh (hopper_wide_step.cuh).
template <int Columns, int WG, bool Natural = false>
__device__ __forceinline__ bool merge_parts(float* area, int wg, float* o, float (&sum)[2], float (&maximum)[2],
                                            float factor) {
  constexpr int kOut = Columns / 2, kValues = kOut + 4;
  __syncthreads();
  if (wg > 0) {
    float* to = area + (wg - 1) * kValues * 128 + threadIdx.x % 128;
#pragma unroll
    for (int i = 0; i < kOut; ++i) to[i * 128] = o[i];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      to[(kOut + r) * 128] = sum[r];
      to[(kOut + 2 + r) * 128] = maximum[r];
    }
  }
  __syncthreads();
  if (wg > 0) return false;
#pragma unroll
  for (int w = 1; w < WG; ++w) {
    const float* from = area + (w - 1) * kValues * 128 + threadIdx.x;
    float mine[2], theirs[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float other = from[(kOut + 2 + r) * 128], top = fmaxf(maximum[r], other);
      const float shift = top == -INFINITY ? 0.f : Natural ? top : top * factor;
      mine[r] = exp2_approx(Natural ? (maximum[r] - shift) * factor : maximum[r] * factor - shift);
      theirs[r] = exp2_approx(Natural ? (other - shift) * factor : other * factor - shift);
      maximum[r] = top;
      sum[r] = sum[r] * mine[r] + from[(kOut + r) * 128] * theirs[r];
    }
#pragma unroll
    for (int i = 0; i < kOut; ++i) o[i] = o[i] * mine[(i >> 1) & 1] + from[i * 128] * theirs[(i >> 1) & 1];
  }
  return true;
}

}  // namespace hopper
