// Bias and mask of the scores of a KV tile, in wgmma accumulators: element i is that of row i / 2 % 2 of the thread's
// two and of column 8 (i / 4) + i % 2 from the thread's first.
#pragma once
#include "../common/exp2.cuh"
#include "../common/launch.cuh"
#include "attention.cuh"

namespace hopper {

// A KV tile's mask for the thread's two rows: the code of the tile (attention.cuh) and the words of its bitmap, shifted
// by the thread's first column.
struct TileMask {
  int tile, code;
  uint64_t bits[2];
};

// The first key of a step.
struct FirstKey {
  const int* order;
  __device__ __forceinline__ int operator()(int step) const { return order[step] * 64; }
};

// The steps of a warpgroup as KV tiles: merged order and codes (hopper_tile_lists.cuh).
struct TileSteps {
  const int *order, *codes;
  int kv_tiles, wg;

  __device__ __forceinline__ TileMask operator()(int step) const {
    TileMask mask;
    mask.tile = order[step], mask.code = codes[wg * kv_tiles + mask.tile];
    return mask;
  }
};

__device__ __forceinline__ void read_bits(const AttentionArgs& args, int row, int column, TileMask& mask) {
  if (mask.code < 0) return;
  mask.bits[0] = args.bitmaps[int64_t(mask.code) * 64 + row] >> column;
  mask.bits[1] = args.bitmaps[int64_t(mask.code) * 64 + row + 8] >> column;
}

// Masks by the bitmap where there is one, else what lies beyond the last key.
__device__ __forceinline__ void mask_scores(float (&x)[32], const AttentionArgs& args, const TileMask& mask,
                                            int first_column) {
  if (mask.code >= 0) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const uint64_t word = mask.bits[i & 2 ? 1 : 0];
      if (!((word >> (8 * (i / 4) + (i & 1))) & 1)) x[i] = -INFINITY;
    }
  } else if (mask.tile * 64 + 64 > args.seq_k) {
#pragma unroll
    for (int i = 0; i < 32; ++i)
      if (mask.tile * 64 + 8 * (i / 4) + first_column + (i & 1) >= args.seq_k) x[i] = -INFINITY;
  }
}

// x = scaled scores plus bias, in natural units.
template <typename T> __device__ __forceinline__ void add_bias(float (&x)[32], const AttentionArgs& args, int b, int h,
                                                               int first_row, int tile, int first_column) {
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int row = first_row + (i & 2 ? 8 : 0), column = tile * 64 + 8 * (i / 4) + first_column + (i & 1);
    float extra = 0.f;
    if (args.bias && row < args.seq_q && column < args.seq_k) {
      const int64_t at =
          b * args.bias_stride[0] + h * args.bias_stride[1] + row * args.bias_stride[2] + column * args.bias_stride[3];
      extra = args.bias_dtype == FS_FLOAT32 ? static_cast<const float*>(args.bias)[at]
                                            : to_float(static_cast<const T*>(args.bias)[at]);
    }
    x[i] = x[i] * args.scale + extra;
  }
}

}  // namespace hopper
