// What v4's warps hold and read: the shape of a block's memory, and the units of keys and values that each warp streams
// through its ring, of 16-bit elements or of e4m3.
#pragma once
#include "byte_rows.cuh"
#include "cluster_sizes.cuh"
#include "stream.cuh"

namespace decode {
// Eights: query columns over 8. Accumulators of 8 leave registers for 16 warps per SM, of 16 for 8. C: an element of
// the cache.
template <typename C, int Width, int Eights> struct Shape {
  static constexpr int blocks_per_sm = 4 / Eights, element = int(sizeof(C));
  static constexpr int rows = 8 * Eights;
  static constexpr int unit_bytes = kUnitKeys * Width * int(sizeof(C));
  static constexpr int stages = 12 * 1024 * Eights / unit_bytes;  // some 190 KB in flight per SM
  static constexpr int row_floats = Width + 4;                    // against bank conflicts
  static constexpr int chunks = rows * Width / 4;                 // of four columns
  static constexpr int inbox_floats = rows * Width + 8 * kMostBlocks, statistics = 2 * rows * kMostBlocks;
  static constexpr int bytes =
      kWarps * stages * unit_bytes + (inbox_floats + statistics) * int(sizeof(float)) + int(sizeof(uint64_t));
  // What the warps merge in lies where their rings were.
  static_assert((rows * row_floats + 2 * rows) * int(sizeof(float)) <= stages * unit_bytes);
};

// What a warp reads of its block's units of 16 keys: every fourth one, keys and values in turn, through its ring.
template <typename C, int Width, int Eights> struct UnitStream {
  using S = Shape<C, Width, Eights>;
  const AttentionDecodeArgs& a;
  const AttentionDecodeGeneral& g;
  char* ring;
  const C *keys, *values;      // of the KV head, in page 0
  const int32_t* block_table;  // the sequence's row, or nullptr
  int b, low, length, how;
  int unit, end;                 // the next unit to load, and where the block's end
  int page = 0;                  // of that unit; read one unit before it is needed. -1: not in the cache
  int fill_at = 0, read_at = 0;  // stages
  unsigned present = 0;          // whether a unit is in the cache: bit 0 the one loaded last, bit 1 the one before
  int loaded = 0;

  __device__ __forceinline__ void find_page() {
    page = b;
    if (block_table) page = unit < end ? block_table[unit * kUnitKeys / g.page] : -1;
  }

  template <typename... Given> static __device__ __forceinline__ void load(Given... given) {
    if constexpr (std::is_same_v<C, E4m3>)
      load_byte_rows<Width>(given...);
    else
      load_rows<C, Width>(given...);
  }

  // Starts loading the next keys or values in order.
  template <bool Values> __device__ __forceinline__ void fill() {
    if (unit < end) {
      const int key = unit * kUnitKeys, row = block_table ? key % g.page : key;
      const bool inside = page >= 0 && page < g.pages;
      const int64_t* stride = Values ? a.v_stride : a.k_stride;
      load(ring + fill_at * S::unit_bytes, (Values ? values : keys) + (inside ? page : 0) * stride[0] + row * stride[2],
           stride[2], stride[3], inside ? low - key : 0, inside ? length - key : 0, a.head_dim,
           how & (Values ? kValueVectors : kKeyVectors));
      if constexpr (Values) {
        unit += kWarps;
        find_page();
      } else {
        present = present << 1 | unsigned(inside);
        ++loaded;
      }
      fill_at = fill_at + 1 == S::stages ? 0 : fill_at + 1;
    }
    async_copy::commit();
  }

  __device__ __forceinline__ void start() {
    find_page();
#pragma unroll 1
    for (int i = 0; i < S::stages - 1; ++i) {
      if (i % 2)
        fill<kValueUnit>();
      else
        fill<kKeyUnit>();
    }
  }

  // The stage that start() leaves free until next() is called.
  __device__ __forceinline__ char* free_stage() const { return ring + (S::stages - 1) * S::unit_bytes; }

  // Waits for the next keys or values in order and refills the stage of those before, which all lanes have read.
  template <bool Values> __device__ __forceinline__ char* next() {
    async_copy::wait<S::stages - 2>();
    __syncwarp();
    fill<Values == (S::stages % 2 == 1)>();
    char* const at = ring + read_at * S::unit_bytes;
    read_at = read_at + 1 == S::stages ? 0 : read_at + 1;
    return at;
  }
};
}  // namespace decode
