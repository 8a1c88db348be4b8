// How decode splits its work: all live tiles of 64 keys in one sequence, divided into equal ranges, one per block.
//
// Tiles are ordered by batch entry, then by item, then by position. An item is one KV head with at most `rows` of the
// query heads that read it. Lengths are read on the device, so ranges are equal at unequal lengths too and nothing
// depends on the host. Block i of n has the tiles [T i / n, T (i + 1) / n): it begins inside at most one item and ends
// inside at most one, so it has at most two partial results, which merge.cuh merges in the order of the blocks. The
// same lengths on the same device give the same bits.
#pragma once
#include "../common/exp2.cuh"
#include "../common/launch.cuh"
#include "attention_decode.cuh"

namespace decode {
constexpr int kTile = 64, kWarps = 4, kThreads = 32 * kWarps;
constexpr unsigned kAll = 0xffffffffu;

template <typename V> __device__ __forceinline__ V warp_sum(V x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(kAll, x, d);
  return x;
}
template <typename V> __device__ __forceinline__ V warp_max(V x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    const V other = __shfl_xor_sync(kAll, x, d);
    x = other > x ? other : x;
  }
  return x;
}

__host__ __device__ inline int group_of(const AttentionDecodeArgs& a) { return a.heads / a.heads_kv; }
// Query heads of an item, and items of a batch entry, for a kernel that computes up to `most` rows at once.
__host__ __device__ inline int rows_of(const AttentionDecodeArgs& a, int most) {
  return group_of(a) < most ? group_of(a) : most;
}
__host__ __device__ inline int items_of(const AttentionDecodeArgs& a, int most) {
  return a.heads_kv * ((group_of(a) + most - 1) / most);
}

__device__ __forceinline__ int length_of(const AttentionDecodeArgs& a, int b) {
  const int n = a.lengths[b];
  return n < 0 ? 0 : n > a.seq_max ? a.seq_max : n;
}
__device__ __forceinline__ int tiles_of(int length) { return (length + kTile - 1) / kTile; }

// A tile of the sequence; the same in all lanes of a warp.
struct Cursor {
  int b, item, tile, length, tiles;

  // Goes to the next tile. Beyond the last it stays at b == batch.
  __device__ __forceinline__ void advance(const AttentionDecodeArgs& a, int items) {
    if (++tile < tiles) return;
    tile = 0;
    if (++item < items) return;
    item = 0;
    do {
      if (++b >= a.batch) return;
      length = length_of(a, b);
      tiles = tiles_of(length);
    } while (tiles == 0);
  }
};

struct BlockRange {
  int64_t total, begin, end;  // tiles in all, and this block's
};

__device__ __forceinline__ BlockRange block_range(const AttentionDecodeArgs& a, int items) {
  int64_t tiles = 0;
  for (int b = threadIdx.x % 32; b < a.batch; b += 32) tiles += tiles_of(length_of(a, b));
  const int64_t total = warp_sum(tiles) * items;
  return {total, total * blockIdx.x / gridDim.x, total * (blockIdx.x + 1) / gridDim.x};
}

// The block that has tile x: the largest i with total i / blocks, rounded down, <= x.
__device__ __forceinline__ int block_of(int64_t x, int64_t total, int blocks) {
  return int(((x + 1) * blocks + total - 1) / total) - 1;
}

// The tile of number x < total. Called by a whole warp.
__device__ __forceinline__ Cursor locate(const AttentionDecodeArgs& a, int items, int64_t x) {
  const int lane = threadIdx.x % 32;
  for (int first = 0;; first += 32) {
    const int b = first + lane, own = b < a.batch ? tiles_of(length_of(a, b)) : 0;
    int upto = own;  // tiles of the entries first ... b
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int before = __shfl_sync(kAll, upto, lane >= d ? lane - d : lane);
      if (lane >= d) upto += before;
    }
    const int64_t here = int64_t(__shfl_sync(kAll, upto, 31)) * items;
    if (x >= here) {
      x -= here;
      continue;
    }
    const int64_t inside = x - int64_t(upto - own) * items;
    const int at = warp_max(inside >= 0 && inside < int64_t(own) * items ? lane : -1);
    const int64_t rest = __shfl_sync(kAll, inside, at);
    const int tiles = __shfl_sync(kAll, own, at);
    Cursor c;
    c.b = first + at;
    c.item = int(rest / tiles);
    c.tile = int(rest % tiles);
    c.tiles = tiles;
    c.length = length_of(a, c.b);
    return c;
  }
}

// Writes zeros for sequences without keys, divided among the blocks.
template <typename T> __device__ __forceinline__ void clear_empty(const AttentionDecodeArgs& a) {
  const int64_t size = int64_t(a.heads) * a.head_dim;
  for (int b = blockIdx.x; b < a.batch; b += gridDim.x)
    if (length_of(a, b) == 0)
      for (int64_t i = threadIdx.x; i < size; i += blockDim.x)
        static_cast<T*>(a.out)[b * size + i] = from_float<T>(0.f);
}
}  // namespace decode
