// Partial results of split tile lists: accumulators, sums and references of 128 threads for each query tile of a group.
#pragma once
#include <stdint.h>

namespace hopper {

// A thread's share of a partial result of query tile `tile` of its group.
template <int Panels, int Tiles>
__device__ __forceinline__ float* partial_at(float* slots, int slot, int tile, int thread) {
  return slots + (int64_t(slot) * Tiles + tile) * ((32 * Panels + 4) * 128) + thread;
}

// rows: of type Rows (hopper_step.cuh).
template <int Panels, int Tiles, typename State>
__device__ __forceinline__ void store_partial(float* slots, int slot, int tile, const State& rows) {
  float* const to = partial_at<Panels, Tiles>(slots, slot, tile, threadIdx.x % 128);
#pragma unroll
  for (int i = 0; i < 32 * Panels; ++i) to[i * 128] = rows.o[i];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    to[(32 * Panels + r) * 128] = rows.sum(r);
    to[(32 * Panels + 2 + r) * 128] = rows.sum(r) > 0.f ? rows.reference[r] : -INFINITY;
  }
}

}  // namespace hopper
