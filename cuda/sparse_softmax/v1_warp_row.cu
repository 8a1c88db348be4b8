// One warp per row, longest rows first: maximum and sum in one online pass merged by shuffles, a second pass writes.
#include "../common/launch.cuh"
#include "../softmax/online.cuh"
#include "sparse_softmax.cuh"

namespace {
constexpr int ROWS = 4;  // rows, and warps, a block

template <typename T> __global__ void __launch_bounds__(32 * ROWS) sparse_softmax_warp_row(const SparseSoftmaxArgs a) {
  const int64_t item = int64_t(blockIdx.x) * ROWS + threadIdx.x / 32;
  if (item >= a.outer * a.inner * a.rows) return;  // uniform per warp
  const int lane = threadIdx.x % 32;
  const int64_t h = item / a.rows, r = a.order[item % a.rows];
  const T* x = static_cast<const T*>(a.x) + h / a.inner * a.x_step[0] + h % a.inner * a.x_step[1];
  T* out = static_cast<T*>(a.out) + h * a.nnz;
  const int first = a.row_offsets[r], last = a.row_offsets[r + 1];
  Online online;
  for (int t = first + lane; t < last; t += 32) online.add(to_float(x[t]) * a.scale);
  online.merge<32>();
  for (int t = first + lane; t < last; t += 32) out[t] = from_float<T>(online.finish(to_float(x[t]) * a.scale));
}
}  // namespace

FUSESCOPE_KERNEL(const SparseSoftmaxArgs* args, void* stream) {
  const int64_t blocks = (args->outer * args->inner * args->rows + ROWS - 1) / ROWS;
  if (blocks > INT32_MAX) return "unsupported: more than 2^33 rows, all heads together";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    sparse_softmax_warp_row<T><<<unsigned(blocks), 32 * ROWS, 0, static_cast<cudaStream_t>(stream)>>>(*args);
    return launch_error();
  });
}
