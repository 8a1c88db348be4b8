// One thread per output: k multiply-adds straight from global memory, the baseline of the ladder.
#include "../common/launch.cuh"
#include "tiles.cuh"

namespace {
constexpr int WIDE = 32, HIGH = 8;  // a warp computes 32 neighbours of one row: B is read in full lines, A is broadcast

template <typename T> __global__ void __launch_bounds__(WIDE* HIGH) gemm_naive(const GemmArgs g, TileGrid grid) {
  int64_t matrix, row, col;
  grid.locate(blockIdx.x, matrix, row, col);
  const int64_t i = row * HIGH + threadIdx.x / WIDE, j = col * WIDE + threadIdx.x % WIDE;
  if (i >= g.m || j >= g.n) return;
  const T* a = static_cast<const T*>(g.a) + i * g.a_row;
  const T* b = static_cast<const T*>(g.b) + j * g.b_col;
  float sum = 0.0f;
  for (int64_t p = 0; p < g.k; ++p) sum += to_float(a[p * g.a_col]) * to_float(b[p * g.b_row]);
  static_cast<T*>(g.c)[i * g.n + j] = from_float<T>(sum);
}
}  // namespace

FUSESCOPE_KERNEL(const GemmArgs* args, void* stream) {
  const TileGrid grid = tile_grid(*args, HIGH, WIDE);
  if (grid.tiles() > MOST_BLOCKS) return "unsupported: more than 2^31 tiles of 8 x 32 (use v2_tiled)";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    gemm_naive<T><<<unsigned(grid.tiles()), WIDE * HIGH, 0, static_cast<cudaStream_t>(stream)>>>(*args, grid);
    return launch_error();
  });
}
