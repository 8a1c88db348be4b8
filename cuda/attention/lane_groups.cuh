// Online softmax of one row over groups of lanes, each with keys of its own.
#pragma once
#include <cuda_runtime.h>

constexpr unsigned kAllLanes = 0xffffffffu;

// Merges (log-sum-exp) the groups of `Lanes` lanes of a warp: every lane gets maximum, sum and context over all keys.
// exp2: 2^x.
template <int Lanes, typename Exp2>
__device__ __forceinline__ void merge_lane_groups(float& maximum, float& sum, float (&context)[8], Exp2 exp2) {
#pragma unroll
  for (int d = Lanes; d < 32; d *= 2) {
    const float other = __shfl_xor_sync(kAllLanes, maximum, d), top = fmaxf(maximum, other),
                base = top == -INFINITY ? 0.f : top;
    const float mine = exp2(maximum - base), theirs = exp2(other - base);
    maximum = top;
    sum = mine * sum + theirs * __shfl_xor_sync(kAllLanes, sum, d);
#pragma unroll
    for (int e = 0; e < 8; ++e) context[e] = mine * context[e] + theirs * __shfl_xor_sync(kAllLanes, context[e], d);
  }
}
