// One warp per row: each lane sums a column of the output over the row's kept elements, 32 columns at a time.
#include "../common/launch.cuh"
#include "spmm.cuh"

namespace {
constexpr int WARPS = 4;  // rows a block

template <typename T> __global__ void __launch_bounds__(32 * WARPS) spmm_warp_row(const SpmmArgs a) {
  const int64_t item = int64_t(blockIdx.x) * WARPS + threadIdx.x / 32;
  if (item >= a.outer * a.inner * a.rows) return;  // uniform per warp
  const int64_t h = item / a.rows, r = item % a.rows;
  const T* values = static_cast<const T*>(a.values) + h / a.inner * a.values_step[0] + h % a.inner * a.values_step[1];
  const T* v = static_cast<const T*>(a.v) + h / a.inner * a.v_step[0] + h % a.inner * a.v_step[1];
  T* out = static_cast<T*>(a.out) + item * a.depth;
  const int begin = a.row_offsets[r], end = a.row_offsets[r + 1];
  for (int64_t d = threadIdx.x % 32; d < a.depth; d += 32) {
    float sum = 0.0f;
    for (int t = begin; t < end; ++t) sum += to_float(values[t]) * to_float(v[a.columns[t] * a.v_step[2] + d]);
    out[d] = from_float<T>(sum);
  }
}
}  // namespace

FUSESCOPE_KERNEL(const SpmmArgs* args, void* stream) {
  if (args->block) return "unsupported: BSR (CSR is; v3_blocks takes BSR)";
  const int64_t blocks = (args->outer * args->inner * args->rows + WARPS - 1) / WARPS;
  if (blocks > INT32_MAX) return "unsupported: more than 2^33 rows, all heads together";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    spmm_warp_row<T><<<unsigned(blocks), 32 * WARPS, 0, static_cast<cudaStream_t>(stream)>>>(*args);
    return launch_error();
  });
}
