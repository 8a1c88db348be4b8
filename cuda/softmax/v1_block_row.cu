// One block per row, three passes over global memory: maximum, sum of exponentials, result.
#include "../common/launch.cuh"
#include "../common/reduce.cuh"
#include "softmax.cuh"

namespace {
constexpr int THREADS = 256;

template <typename T>
__global__ void __launch_bounds__(THREADS) softmax_block_row(const T* x, T* out, int64_t x_row, int64_t cols) {
  x += blockIdx.x * x_row;
  out += blockIdx.x * cols;
  float highest = -INFINITY;
  for (int64_t j = threadIdx.x; j < cols; j += THREADS) highest = fmaxf(highest, to_float(x[j]));
  highest = group_reduce<Max, THREADS>(highest);
  float sum = 0.0f;
  for (int64_t j = threadIdx.x; j < cols; j += THREADS) sum += __expf(to_float(x[j]) - highest);
  sum = group_reduce<Sum, THREADS>(sum);
  for (int64_t j = threadIdx.x; j < cols; j += THREADS) out[j] = from_float<T>(__expf(to_float(x[j]) - highest) / sum);
}
}  // namespace

FUSESCOPE_KERNEL(const SoftmaxArgs* args, void* stream) {
  if (args->rows > INT32_MAX) return "unsupported: more than 2^31 rows";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    softmax_block_row<T><<<unsigned(args->rows), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(args->x), static_cast<T*>(args->out), args->x_row, args->cols);
    return launch_error();
  });
}
