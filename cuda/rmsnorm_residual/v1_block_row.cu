// One block per row, two passes over global memory, each adding x and residual anew: mean square, result.
#include "../common/launch.cuh"
#include "../common/reduce.cuh"
#include "rmsnorm_residual.cuh"

namespace {
constexpr int THREADS = 256;

template <typename T> __global__ void __launch_bounds__(THREADS) rmsnorm_residual_block_row(RmsnormResidualArgs args) {
  const int64_t r = blockIdx.x, cols = args.cols;
  const T* x = static_cast<const T*>(args.x.data) + row_begin(args.x, r, args.inner);
  const T* residual = nullptr;
  if (args.residual.data)
    residual = static_cast<const T*>(args.residual.data) + row_begin(args.residual, r, args.inner);
  auto weight = static_cast<const T*>(args.weight);
  T* out = static_cast<T*>(args.out) + r * cols;
  T* sum = static_cast<T*>(args.sum) + r * cols;
  auto sum_at = [&](int64_t j) { return to_float(x[j]) + (residual ? to_float(residual[j]) : 0.0f); };
  float squares = 0.0f;
  for (int64_t j = threadIdx.x; j < cols; j += THREADS) {
    const float s = sum_at(j);
    squares += s * s;
    if (residual) sum[j] = from_float<T>(s);
  }
  const float scale = rsqrtf(group_reduce<Sum, THREADS>(squares) / float(cols) + args.eps);
  for (int64_t j = threadIdx.x; j < cols; j += THREADS) out[j] = from_float<T>(sum_at(j) * scale * to_float(weight[j]));
}
}  // namespace

FUSESCOPE_KERNEL(const RmsnormResidualArgs* args, void* stream) {
  if (args->rows > INT32_MAX) return "unsupported: more than 2^31 rows";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    rmsnorm_residual_block_row<T><<<unsigned(args->rows), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(*args);
    return launch_error();
  });
}
