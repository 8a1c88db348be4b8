// The keys and values of v3's warps: each warp streams 16 keys of every tile of its block's share through a ring of
// units (K of 16 keys, then their V), from a contiguous cache or from pages.
#pragma once
#include "../common/device.cuh"
#include "../common/eight.cuh"
#include "join.cuh"
#include "units.cuh"

namespace decode {
constexpr bool kKeyUnit = false, kValueUnit = true;
enum { kKeyVectors = 1, kValueVectors = 2, kQueryPairs = 4 };

// Units of a warp's ring, and blocks an SM: a block fits into the 99 KB of sm_86, and an H200's 227 KB hold up to 160
// KB in flight.
template <int Width> struct Ring {
  static constexpr int units = Width <= 64 ? 5 : Width <= 96 ? 6 : Width <= 128 ? 5 : Width <= 192 ? 3 : 2;
  static constexpr int blocks_per_sm = Width <= 64 ? 3 : 2;  // four of 64 columns would spill
  static constexpr int unit_bytes = kUnitKeys * Width * 2;
  static constexpr int bytes = kWarps * units * unit_bytes + int(sizeof(MergeStorage<Width>));
};

// How keys, values and queries can be loaded, of the three above. size: bytes of an element of the cache.
inline int loads_of(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g, int size = 2) {
  const bool pairs =
      aligned(a.q, 4) && a.q_stride[2] == 1 && a.q_stride[0] % 2 == 0 && a.q_stride[1] % 2 == 0 && g.q_token % 2 == 0;
  return (has_vectors(a.k, a.k_stride, size) ? kKeyVectors : 0) |
         (has_vectors(a.v, a.v_stride, size) ? kValueVectors : 0) | (pairs ? kQueryPairs : 0);
}

// Two neighbouring columns of a query row as mma takes them; zeros outside.
template <typename T> __device__ __forceinline__ uint32_t query_pair(const T* row, int64_t column_stride, int column,
                                                                     bool inside, bool pairs) {
  if (!inside) return 0;
  if (pairs) return *reinterpret_cast<const uint32_t*>(row + column);
  alignas(4) T two[2] = {row[column * column_stride], row[(column + 1) * column_stride]};
  return *reinterpret_cast<uint32_t*>(two);
}

// Starts loading rows [begin, end) of 16 from `from` on; zeros for the others, where nothing is read.
template <typename T, int Width>
__device__ __forceinline__ void load_rows(char* unit, const T* from, int64_t row_stride, int64_t column_stride,
                                          int begin, int end, int head_dim, bool vectors) {
  constexpr int chunks = Width / 8;
  const int lane = threadIdx.x % 32;
  if (vectors) {
    if constexpr (32 % chunks == 0) {  // a lane stays in its column
      constexpr int rows = 32 / chunks;
      const int row = lane / chunks, c = lane % chunks;
      const unsigned live = 8 * c < head_dim && end > begin ? unsigned(end - begin) : 0;
      const T* source = from + row * row_stride + 8 * c;
      const uint32_t to = tensor_core::shared_address(unit);
#pragma unroll
      for (int r = 0; r < kUnitKeys; r += rows, source += rows * row_stride)
        async_copy::copy16(to + place<Width>(r + row, c), source, unsigned(r + row - begin) < live);
    } else {
#pragma unroll
      for (int i = 0; i < kUnitKeys * chunks / 32; ++i) {
        const int index = lane + 32 * i, r = index / chunks, c = index % chunks;
        async_copy::copy16(tensor_core::shared_address(unit + place<Width>(r, c)), from + r * row_stride + 8 * c,
                           r >= begin && r < end && 8 * c < head_dim);
      }
    }
  } else {
#pragma unroll 1
    for (int index = lane; index < kUnitKeys * chunks; index += 32) {
      const int r = index / chunks, c = index % chunks;
      const bool live = r >= begin && r < end && 8 * c < head_dim;
      alignas(16) T eight[8];
#pragma unroll
      for (int e = 0; e < 8; ++e)
        eight[e] = live ? from[r * row_stride + (8 * c + e) * column_stride] : from_float<T>(0.f);
      *reinterpret_cast<uint4*>(unit + place<Width>(r, c)) = *reinterpret_cast<uint4*>(eight);
    }
  }
}

// What a warp loads, in the order in which it computes: keys and values of a tile in turn. All lanes hold the same.
template <typename T, int Width> struct Stream {
  using R = Ring<Width>;
  const AttentionDecodeArgs& a;
  const AttentionDecodeGeneral& g;
  char* ring;
  int items, blocks, how, warp;
  Place ahead;           // the tile being loaded
  int left;              // tiles whose values are still to be loaded
  int fill_at, read_at;  // the ring's stages for the next unit loaded, and read
  int page;              // of the tile being loaded; read one tile before it is needed. -1: not in the cache
  unsigned present;  // whether the keys of a tile are in the cache: bit 0 the tile loaded last, bit 1 the one before
  int loaded;        // tiles whose keys have been loaded

  __device__ __forceinline__ int first_key() const { return ahead.tile * kTile + warp * kUnitKeys; }

  __device__ __forceinline__ void find_page() {
    page = ahead.b;
    if (g.block_table && left > 0) {
      const int key = first_key();
      page = key < ahead.span.length ? g.block_table[ahead.b * g.table_row + key / g.page] : -1;
    }
  }

  // Starts loading the next unit in order.
  template <bool Values> __device__ __forceinline__ void fill() {
    if (left > 0) {
      const int key = first_key();
      const bool inside = page >= 0 && page < g.pages;
      const int begin = inside ? ahead.span.low - key : 0, end = inside ? ahead.span.length - key : 0;
      const int64_t* stride = Values ? a.v_stride : a.k_stride;
      const T* from = static_cast<const T*>(Values ? a.v : a.k) + (inside ? page : 0) * stride[0] +
                      ahead.item / blocks * stride[1] + (g.block_table ? key % g.page : key) * stride[2];
      load_rows<T, Width>(ring + fill_at * R::unit_bytes, from, stride[2], stride[3], begin, end, a.head_dim,
                          how & (Values ? kValueVectors : kKeyVectors));
      if constexpr (Values) {
        --left;
        ahead.advance(a, g, items);
        find_page();
      } else {
        present = present << 1 | unsigned(inside);
        ++loaded;
      }
      fill_at = fill_at + 1 == R::units ? 0 : fill_at + 1;
    }
    async_copy::commit();
  }

  // Loads what the ring holds before the first unit is read.
  __device__ __forceinline__ void start() {
    find_page();
#pragma unroll 1
    for (int i = 0; i < R::units - 1; ++i) {
      if (i % 2)
        fill<kValueUnit>();
      else
        fill<kKeyUnit>();
    }
  }

  // Waits for the next unit in order and refills the stage of the one before, which all lanes have read, with the unit
  // R::units - 1 further on: values for values where that is an even number.
  template <bool Values> __device__ __forceinline__ char* next() {
    async_copy::wait<R::units - 2>();
    __syncwarp();
    fill<Values == (R::units % 2 == 1)>();
    char* const unit = ring + read_at * R::unit_bytes;
    read_at = read_at + 1 == R::units ? 0 : read_at + 1;
    return unit;
  }

  // Whether the keys of tile `step` of the share, which the ring holds, are in the cache.
  __device__ __forceinline__ bool has(int step) const { return present >> (loaded - 1 - step) & 1; }
};
}  // namespace decode
