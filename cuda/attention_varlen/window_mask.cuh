// A window's mask on the scores of a query tile and a tile of keys, in wgmma accumulators
// (../attention/hopper_mask.cuh).
#pragma once
#include <math.h>

namespace varlen {

// Row i of the query tile sees the keys see - width + i <= j < see + i of its sequence, which has so many. x: scores of
// the 64 keys from `key` on; row, column: the thread's first element.
__device__ __forceinline__ void mask_window(float (&x)[32], int see, int width, int keys, int key, int row,
                                            int column) {
  if (key + 64 <= see && key + 64 <= keys && key >= see - width + 63) return;  // all rows see all of them
  const int end = see + row - key - column, begin = end - width, last = keys - key - column;
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int at = 8 * (i / 4) + (i & 1), below = i & 2 ? 8 : 0;
    if (at >= last || at >= end + below || at < begin + below) x[i] = -INFINITY;
  }
}

}  // namespace varlen
