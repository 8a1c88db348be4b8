// The tile lists of a block's warpgroups, which have neighbouring query tiles of one head, merged into one order of
// steps in shared memory: a step is one KV tile, with a code for each warpgroup.
//
// The order holds the KV tiles that only the first warpgroup needs, then those of both, then those of the second alone,
// so that each warpgroup's own steps are one unbroken range and its loop has no branch around a product.
#pragma once
#include "attention.cuh"

namespace hopper {

constexpr int kNoTile = -2;  // the code of a KV tile that a warpgroup does not need

// By all threads of the block: the codes (attention.cuh) of all KV tiles for each warpgroup; this one is wg.
template <int WG> __device__ __forceinline__ void mark_tiles(const AttentionArgs& args, int b, int h, int q_block,
                                                             int q_tiles, int kv_tiles, int wg, int* codes) {
  for (int i = threadIdx.x; i < WG * kv_tiles; i += 128 * WG) codes[i] = kNoTile;
  __syncthreads();
  if (const int q_tile = q_block * WG + wg; q_tile < q_tiles) {
    if (args.row_ptr == nullptr) {
      for (int i = threadIdx.x % 128; i < kv_tiles; i += 128) codes[wg * kv_tiles + i] = -1;
    } else {
      const int32_t* row = args.row_ptr + int64_t(b * args.mask_stride_b + h * args.mask_stride_h) * q_tiles + q_tile;
      const int last = row[1];
      for (int i = row[0] + int(threadIdx.x % 128); i < last; i += 128)
        codes[wg * kv_tiles + args.tile_index[i]] = args.tile_code[i];
    }
  }
  __syncthreads();
}

// By one warp: the order of the steps, and where each of its 2 WG - 1 ranges ends.
template <int WG>
__device__ __forceinline__ void order_tiles(const int* codes, int kv_tiles, int* order, int* range_end) {
  const int lane = threadIdx.x % 32;
  int count = 0;
#pragma unroll
  for (int range = 0; range < 2 * WG - 1; ++range) {
    const int needed_by = WG == 1 ? 1 : range == 0 ? 1 : range == 1 ? 3 : 2;  // bit w: warpgroup w
    for (int base = 0; base < kv_tiles; base += 32) {
      const int t = base + lane;
      int live = 0;
      if (t < kv_tiles)
        for (int w = 0; w < WG; ++w) live |= (codes[w * kv_tiles + t] != kNoTile) << w;
      const uint32_t mask = __ballot_sync(0xffffffffu, live == needed_by);
      if (live == needed_by) order[count + __popc(mask & ((1u << lane) - 1))] = t;
      count += __popc(mask);
    }
    if (lane == 0) range_end[range] = count;
  }
}

}  // namespace hopper
