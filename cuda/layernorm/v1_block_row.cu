// One block per row, three passes over global memory: mean, variance about it, result.
#include "../common/launch.cuh"
#include "../common/reduce.cuh"
#include "layernorm.cuh"

namespace {
constexpr int THREADS = 256;

template <typename T>
__global__ void __launch_bounds__(THREADS) layernorm_block_row(const T* x, const T* weight, const T* bias, T* out,
                                                               int64_t x_row, int64_t cols, float eps) {
  x += blockIdx.x * x_row;
  out += blockIdx.x * cols;
  const float first = to_float(x[0]);
  float sum = 0.0f;
  for (int64_t j = threadIdx.x; j < cols; j += THREADS) sum += to_float(x[j]) - first;
  const float mean = group_reduce<Sum, THREADS>(sum) / float(cols);  // of what is left without the first element
  float squares = 0.0f;
  for (int64_t j = threadIdx.x; j < cols; j += THREADS) {
    const float d = to_float(x[j]) - first - mean;
    squares += d * d;
  }
  const float scale = rsqrtf(group_reduce<Sum, THREADS>(squares) / float(cols) + eps);
  for (int64_t j = threadIdx.x; j < cols; j += THREADS) {
    const float v = (to_float(x[j]) - first - mean) * scale;
    out[j] = from_float<T>(v * (weight ? to_float(weight[j]) : 1.0f) + (bias ? to_float(bias[j]) : 0.0f));
  }
}
}  // namespace

FUSESCOPE_KERNEL(const LayernormArgs* args, void* stream) {
  if (args->rows > INT32_MAX) return "unsupported: more than 2^31 rows";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    layernorm_block_row<T><<<unsigned(args->rows), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(args->x), static_cast<const T*>(args->weight), static_cast<const T*>(args->bias),
        static_cast<T*>(args->out), args->x_row, args->cols, args->eps);
    return launch_error();
  });
}
