// Eight lanes per key with 16-byte loads, four keys of a row at once; long rows are shared by the warps of a block and
// come first.
//
// The groups of a warp sum different keys of the same row in registers and reduce by shuffles at the end. A row of more
// elements than a warp should walk alone (the front of `order`) gets a block, whose warps merge in shared memory: a few
// global rows then do not delay the others.
#include <type_traits>

#include "../common/row_groups.cuh"
#include "spmm.cuh"

namespace {
using namespace groups;
constexpr int WARPS = 8;
constexpr unsigned ALL = 0xffffffffu;

// Elements first, first + stride ... (32 at a time) of a row into sum: this lane's columns of its group's keys.
template <typename T, int Chunks, bool Wide>
__device__ __forceinline__ void gather(const SpmmArgs& a, const T* values, const T* v, int first, int last, int stride,
                                       int64_t column, float (&sum)[Chunks][WIDTH<T>]) {
  constexpr int Flight = Chunks == 1 ? 4 : Chunks == 2 ? 2 : 1;  // keys of a group that are loaded together
  const int lane = threadIdx.x % 32, group = lane / LANES;
  for (int begin = first; begin < last; begin += stride) {
    const int own = begin + lane < last ? begin + lane : last - 1;
    const int my_column = a.columns[own];
    const float my_value = to_float(values[own]);
    const int count = last - begin < 32 ? last - begin : 32;
    for (int step = 0; step * GROUPS < count; step += Flight) {
      Pack<T> loaded[Flight][Chunks];
      float value[Flight];
#pragma unroll
      for (int f = 0; f < Flight; ++f) {
        const int from = (step + f) * GROUPS + group;
        const T* row = v + __shfl_sync(ALL, my_column, from) * a.v_step[2];
        value[f] = __shfl_sync(ALL, my_value, from);
        // Beyond the row nothing is read: zeros, since 0 times another row's infinity would not be 0.
        const int64_t depth = from < count ? a.depth : 0;
#pragma unroll
        for (int c = 0; c < Chunks; ++c) loaded[f][c] = read<T, Wide>(row, column + c * CHUNK<T>, depth);
        if (from >= count) value[f] = 0.0f;
      }
#pragma unroll
      for (int f = 0; f < Flight; ++f)
#pragma unroll
        for (int c = 0; c < Chunks; ++c)
#pragma unroll
          for (int e = 0; e < WIDTH<T>; ++e) sum[c][e] += value[f] * to_float(loaded[f][c].value[e]);
    }
  }
#pragma unroll
  for (int c = 0; c < Chunks; ++c)
#pragma unroll
    for (int e = 0; e < WIDTH<T>; ++e)
#pragma unroll
      for (int distance = LANES; distance < 32; distance *= 2) sum[c][e] += __shfl_xor_sync(ALL, sum[c][e], distance);
}

template <typename T, bool Wide>
__device__ __forceinline__ void write(T* row, int64_t column, int64_t depth, const float* sum) {
  if constexpr (Wide) {
    if (column >= depth) return;
    Pack<T> pack;
#pragma unroll
    for (int e = 0; e < WIDTH<T>; ++e) pack.value[e] = from_float<T>(sum[e]);
    *reinterpret_cast<Pack<T>*>(row + column) = pack;
  } else {
#pragma unroll
    for (int e = 0; e < WIDTH<T>; ++e)
      if (column + e < depth) row[column + e] = from_float<T>(sum[e]);
  }
}

template <typename T, int Chunks, bool Wide>
__global__ void __launch_bounds__(32 * WARPS, Chunks == 4 ? 1 : 2) spmm_balanced(const SpmmArgs a, int64_t panels,
                                                                                 int64_t long_blocks) {
  constexpr int Width = WIDTH<T>;
  __shared__ float part[WARPS][Chunks * CHUNK<T>];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, member = lane % LANES;
  const bool shared_row = blockIdx.x < long_blocks;  // the whole block
  const int64_t places = shared_row ? a.long_rows : a.rows - a.long_rows;
  const int64_t item = shared_row ? blockIdx.x : (int64_t(blockIdx.x) - long_blocks) * WARPS + warp;
  if (item >= panels * a.outer * a.inner * places) return;  // whole warps, of blocks without a barrier
  const int64_t place = item % places, h = item / places % (a.outer * a.inner),
                panel = item / places / (a.outer * a.inner);
  const int64_t r = a.order[shared_row ? place : a.long_rows + place],
                column = panel * Chunks * CHUNK<T> + member * Width;
  const T* values = static_cast<const T*>(a.values) + h / a.inner * a.values_step[0] + h % a.inner * a.values_step[1];
  const T* v = static_cast<const T*>(a.v) + h / a.inner * a.v_step[0] + h % a.inner * a.v_step[1];
  T* out = static_cast<T*>(a.out) + (h * a.rows + r) * a.depth;
  const int first = a.row_offsets[r], last = a.row_offsets[r + 1];

  float sum[Chunks][Width] = {};
  if (!shared_row) {
    gather<T, Chunks, Wide>(a, values, v, first, last, 32, column, sum);
    if (lane < LANES)
#pragma unroll
      for (int c = 0; c < Chunks; ++c) write<T, Wide>(out, column + c * CHUNK<T>, a.depth, sum[c]);
    return;
  }
  gather<T, Chunks, Wide>(a, values, v, first + 32 * warp, last, 32 * WARPS, column, sum);
  if (lane < LANES)
#pragma unroll
    for (int c = 0; c < Chunks; ++c)
#pragma unroll
      for (int e = 0; e < Width; ++e) part[warp][c * CHUNK<T> + member * Width + e] = sum[c][e];
  __syncthreads();
  for (int d = threadIdx.x; d < Chunks * CHUNK<T>; d += 32 * WARPS) {
    float all = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) all += part[w][d];
    const int64_t to = panel * Chunks * CHUNK<T> + d;
    if (to < a.depth) out[to] = from_float<T>(all);
  }
}

template <typename T, int Chunks, bool Wide> const char* launch(const SpmmArgs& a, cudaStream_t stream) {
  const int64_t panels = (a.depth + Chunks * CHUNK<T> - 1) / (Chunks * CHUNK<T>), heads = a.outer * a.inner;
  const int64_t long_blocks = panels * heads * a.long_rows;
  const int64_t blocks = long_blocks + (panels * heads * (a.rows - a.long_rows) + WARPS - 1) / WARPS;
  if (blocks > INT32_MAX) return "unsupported: more than 2^31 rows, all heads together";
  spmm_balanced<T, Chunks, Wide><<<unsigned(blocks), 32 * WARPS, 0, stream>>>(a, panels, long_blocks);
  return launch_error();
}

template <typename T, bool Wide> const char* by_depth(const SpmmArgs& a, cudaStream_t stream) {
  if (a.depth <= CHUNK<T>) return launch<T, 1, Wide>(a, stream);
  if (a.depth <= 2 * CHUNK<T>) return launch<T, 2, Wide>(a, stream);
  return launch<T, 4, Wide>(a, stream);
}
}  // namespace

FUSESCOPE_KERNEL(const SpmmArgs* args, void* stream) {
  if (args->block) return "unsupported: BSR (CSR is; v3_blocks takes BSR)";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    auto on = static_cast<cudaStream_t>(stream);
    return wide<T>(args->v, args->v_step, 3, args->depth) ? by_depth<T, true>(*args, on)
                                                          : by_depth<T, false>(*args, on);
  });
}
