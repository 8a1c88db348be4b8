// The sum of a row goes into a buffer that stays in the first-level cache; mean, variance and result are passes over
// that.
#include <memory>

#include "../common/cpu_norm.h"
#include "bias_residual_layernorm.cuh"

using namespace fusescope_cpu;

namespace {
// Rows of fp32; bias and residual may be nullptr. out may be sum.
void norm_row(const float* x, const float* bias, const float* residual, const float* weight, const float* shift,
              float* out, float* sum, int64_t cols, float eps) {
  if (bias && residual) {
#pragma omp simd
    for (int64_t j = 0; j < cols; ++j) sum[j] = x[j] + bias[j] + residual[j];
  } else if (bias || residual) {
    const float* more = bias ? bias : residual;
#pragma omp simd
    for (int64_t j = 0; j < cols; ++j) sum[j] = x[j] + more[j];
  } else {
#pragma omp simd
    for (int64_t j = 0; j < cols; ++j) sum[j] = x[j];
  }
  normalise(sum, weight, shift, out, cols, eps);
}

template <typename T> void rows_of(const BiasResidualLayernormArgs& args) {
  auto x = static_cast<const T*>(args.x), residual = static_cast<const T*>(args.residual);
  auto out = static_cast<T*>(args.out);
  const int64_t rows = args.rows, cols = args.cols;
  const Widened<T> bias(args.bias, cols), weight(args.weight, cols), shift(args.shift, cols);
#pragma omp parallel if (rows > 1 && rows * cols > 8192)
  {
    std::unique_ptr<float[]> buffer(new float[2 * cols]);
    float *sum = buffer.get(), *more = sum + cols;
#pragma omp for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
      const T *from = x + r * args.x_row, *add = residual ? residual + r * args.residual_row : nullptr;
      T* to = out + r * cols;
      if constexpr (sizeof(T) == 4) {
        norm_row(from, bias.data, add, weight.data, shift.data, to, sum, cols, args.eps);
      } else {
        widen(from, sum, cols);
        if (add) widen(add, more, cols);
        norm_row(sum, bias.data, add ? more : nullptr, weight.data, shift.data, sum, sum, cols, args.eps);
        narrow(sum, to, cols);
      }
    }
  }
}
}  // namespace

FUSESCOPE_KERNEL(const BiasResidualLayernormArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) -> const char* {
    rows_of<decltype(zero)>(*args);
    return nullptr;
  });
}
