// One warp per row: for each kept element the lanes share the dot product and reduce it by shuffles.
#include "../common/launch.cuh"
#include "../common/reduce.cuh"
#include "sddmm.cuh"

namespace {
constexpr int WARPS = 4;  // rows a block

template <typename T> __global__ void __launch_bounds__(32 * WARPS) sddmm_warp_row(const SddmmArgs a) {
  const int64_t item = int64_t(blockIdx.x) * WARPS + threadIdx.x / 32;
  if (item >= a.outer * a.inner * a.rows) return;  // uniform per warp
  const int lane = threadIdx.x % 32;
  const int64_t h = item / a.rows, r = item % a.rows;
  const T* q = static_cast<const T*>(a.q) + h / a.inner * a.q_step[0] + h % a.inner * a.q_step[1] + r * a.q_step[2];
  const T* k = static_cast<const T*>(a.k) + h / a.inner * a.k_step[0] + h % a.inner * a.k_step[1];
  T* out = static_cast<T*>(a.out) + h * a.nnz;
  for (int t = a.row_offsets[r]; t < a.row_offsets[r + 1]; ++t) {
    const T* key = k + a.columns[t] * a.k_step[2];
    float dot = 0.0f;
    for (int64_t d = lane; d < a.depth; d += 32) dot += to_float(q[d]) * to_float(key[d]);
    dot = warp_reduce<Sum>(dot);
    if (lane == 0) out[t] = from_float<T>(dot);
  }
}
}  // namespace

FUSESCOPE_KERNEL(const SddmmArgs* args, void* stream) {
  if (args->block) return "unsupported: BSR (CSR is; v3_blocks takes BSR)";
  const int64_t blocks = (args->outer * args->inner * args->rows + WARPS - 1) / WARPS;
  if (blocks > INT32_MAX) return "unsupported: more than 2^33 rows, all heads together";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    sddmm_warp_row<T><<<unsigned(blocks), 32 * WARPS, 0, static_cast<cudaStream_t>(stream)>>>(*args);
    return launch_error();
  });
}
