// One block per row, three passes over global memory, each adding x, bias and residual anew: mean, variance about it,
// result.
#include "../common/launch.cuh"
#include "../common/reduce.cuh"
#include "bias_residual_layernorm.cuh"

namespace {
constexpr int THREADS = 256;

template <typename T> __global__ void __launch_bounds__(THREADS) bias_residual_layernorm_block_row(
    const T* x, const T* bias, const T* residual, const T* weight, const T* shift, T* out, int64_t x_row,
    int64_t residual_row, int64_t cols, float eps) {
  x += blockIdx.x * x_row;
  if (residual) residual += blockIdx.x * residual_row;
  out += blockIdx.x * cols;
  auto sum_at = [&](int64_t j) {
    float s = to_float(x[j]);
    if (bias) s += to_float(bias[j]);
    if (residual) s += to_float(residual[j]);
    return s;
  };
  const float first = sum_at(0);
  float sum = 0.0f;
  for (int64_t j = threadIdx.x; j < cols; j += THREADS) sum += sum_at(j) - first;
  const float mean = group_reduce<Sum, THREADS>(sum) / float(cols);  // of what is left without the first element
  float squares = 0.0f;
  for (int64_t j = threadIdx.x; j < cols; j += THREADS) {
    const float d = sum_at(j) - first - mean;
    squares += d * d;
  }
  const float scale = rsqrtf(group_reduce<Sum, THREADS>(squares) / float(cols) + eps);
  for (int64_t j = threadIdx.x; j < cols; j += THREADS)
    out[j] = from_float<T>((sum_at(j) - first - mean) * scale * to_float(weight[j]) + to_float(shift[j]));
}
}  // namespace

FUSESCOPE_KERNEL(const BiasResidualLayernormArgs* args, void* stream) {
  if (args->rows > INT32_MAX) return "unsupported: more than 2^31 rows";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    bias_residual_layernorm_block_row<T><<<unsigned(args->rows), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(args->x), static_cast<const T*>(args->bias), static_cast<const T*>(args->residual),
        static_cast<const T*>(args->weight), static_cast<const T*>(args->shift), static_cast<T*>(args->out),
        args->x_row, args->residual_row, args->cols, args->eps);
    return launch_error();
  });
}
