// One warp per row, no block barrier: maximum and sum in one online pass merged by shuffles, a second pass writes.
#include "../common/launch.cuh"
#include "online.cuh"
#include "softmax.cuh"

namespace {
constexpr int ROWS = 4;  // rows, and warps, a block

template <typename T> __global__ void __launch_bounds__(32 * ROWS) softmax_warp_row(const T* x, T* out, int64_t rows,
                                                                                    int64_t x_row, int64_t cols) {
  const int64_t r = int64_t(blockIdx.x) * ROWS + threadIdx.x / 32;
  if (r >= rows) return;
  const int lane = threadIdx.x % 32;
  x += r * x_row;
  out += r * cols;
  Online online;
  for (int64_t j = lane; j < cols; j += 32) online.add(to_float(x[j]));
  online.merge<32>();
  for (int64_t j = lane; j < cols; j += 32) out[j] = from_float<T>(online.finish(to_float(x[j])));
}
}  // namespace

FUSESCOPE_KERNEL(const SoftmaxArgs* args, void* stream) {
  const int64_t blocks = (args->rows + ROWS - 1) / ROWS;
  if (blocks > INT32_MAX) return "unsupported: more than 2^33 rows";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    softmax_warp_row<T><<<unsigned(blocks), 32 * ROWS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(args->x), static_cast<T*>(args->out), args->rows, args->x_row, args->cols);
    return launch_error();
  });
}
