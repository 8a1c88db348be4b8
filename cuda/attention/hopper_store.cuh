// Epilogue of the Hopper kernels: stores a query tile's accumulators to global memory as coalesced 16-byte stores.
#pragma once
#include "../common/hopper.cuh"
#include "../common/mma.cuh"
#include "../common/nan_watch.cuh"
#include "../common/warpgroup.cuh"

namespace hopper {

// By all threads of warpgroup wg (0 or 1). value(i, r): final value of accumulator i of a 64 x 64 Panels product, r its
// row (0: the thread's first, 1: eight further on). tile: Panels free tiles of shared memory; to: the tile's first row;
// rows: how many of its 64 exist; columns: head_dim; stride: elements between rows. Gives the thread's rows of the
// warp's 16 that hold a NaN, as bits; where there are any, all rows are in global memory then.
template <typename T, int Panels, typename Value>
__device__ __forceinline__ unsigned store_tile(uint8_t* tile, int wg, T* to, int64_t stride, int rows, int columns,
                                               Value value) {
  const int lane = threadIdx.x % 32, first_row = 16 * (threadIdx.x / 32 % 4) + lane / 4, t2 = 2 * (lane % 4);
  NanWatch<T> watch[2];
  warpgroup_barrier(wg);
#pragma unroll
  for (int j = 0; j < 8 * Panels; ++j)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = first_row + 8 * r;
      const uint32_t two = tensor_core::pack<T>(value(4 * j + 2 * r, r), value(4 * j + 2 * r + 1, r));
      watch[r].add(two);
      *reinterpret_cast<uint32_t*>(tile + j / 8 * kTileBytes + row * 128 + ((j % 8 ^ (row & 7)) << 4) + 2 * t2) = two;
    }
  const unsigned broken = (watch[0].found() ? 1u << lane / 4 : 0) | (watch[1].found() ? 256u << lane / 4 : 0);
  const bool any = warpgroup_any(wg, broken);
  for (int i = threadIdx.x % 128; i < 64 * 8 * Panels; i += 128) {
    const int c = i % (8 * Panels), r = i / (8 * Panels);
    if (r < rows && c * 8 < columns)
      *reinterpret_cast<uint4*>(to + r * stride + c * 8) =
          *reinterpret_cast<const uint4*>(tile + c / 8 * kTileBytes + r * 128 + ((c % 8 ^ (r & 7)) << 4));
  }
  if (any) warpgroup_barrier(wg);
  return broken;
}

}  // namespace hopper
