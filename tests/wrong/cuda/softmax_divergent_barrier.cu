// Wrong on purpose: threads without an element leave before the block's reduction.
#include "../common/launch.cuh"
#include "../common/reduce.cuh"
#include "softmax.cuh"

namespace {
template <typename T> __global__ void softmax_row(const T* x, T* out, int64_t x_row, int64_t cols) {
  x += blockIdx.x * x_row;
  out += blockIdx.x * cols;
  float sum = 0.0f;
  for (int64_t j = threadIdx.x; j < cols; j += 256) {
    sum += __expf(to_float(x[j]));
    if (j + 256 >= cols && threadIdx.x % 32 == 31) sum = warp_reduce<Sum>(sum);
  }
  sum = group_reduce<Sum, 256>(sum);
  for (int64_t j = threadIdx.x; j < cols; j += 256) out[j] = from_float<T>(__expf(to_float(x[j])) / sum);
}
}  // namespace

FUSESCOPE_KERNEL(const SoftmaxArgs* args, void* stream) {
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    softmax_row<T><<<unsigned(args->rows), 256, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(args->x), static_cast<T*>(args->out), args->x_row, args->cols);
    return launch_error();
  });
}
