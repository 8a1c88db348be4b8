// Three vectorised passes over a row that stays in cache, the exponential inlined; rows split over the OpenMP threads.
#include <memory>

#include "../common/cpu.h"
#include "../common/cpu_exp.h"
#include "softmax.cuh"

using namespace fusescope_cpu;

namespace {
// One row. `wide` holds cols floats for the exponentials; it is `out` itself where that is fp32.
template <typename T> void softmax_row(const T* x, T* out, float* wide, int64_t cols) {
  float highest = -__builtin_inff();
#pragma omp simd reduction(max : highest)
  for (int64_t j = 0; j < cols; ++j) {
    const float v = to_float(x[j]);
    highest = v > highest ? v : highest;
  }
  double total = 0.0;  // of blocks of 4096 summed in fp32: long rows keep full fp32 accuracy
  for (int64_t from = 0; from < cols; from += 4096) {
    const int64_t to = from + 4096 < cols ? from + 4096 : cols;
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = from; j < to; ++j) {
      const float e = fast_exp(to_float(x[j]) - highest);
      wide[j] = e;
      sum += e;
    }
    total += sum;
  }
  const float scale = float(1.0 / total);
#pragma omp simd
  for (int64_t j = 0; j < cols; ++j) out[j] = from_float<T>(wide[j] * scale);
}
}  // namespace

FUSESCOPE_KERNEL(const SoftmaxArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    auto x = static_cast<const T*>(args->x);
    auto out = static_cast<T*>(args->out);
    const int64_t rows = args->rows, cols = args->cols, step = args->x_row;
#pragma omp parallel if (rows > 1 && rows * cols > 8192)
    {
      std::unique_ptr<float[]> buffer(sizeof(T) == 4 ? nullptr : new float[cols]);
#pragma omp for schedule(static)
      for (int64_t r = 0; r < rows; ++r) {
        T* to = out + r * cols;
        float* wide = buffer ? buffer.get() : reinterpret_cast<float*>(to);
        softmax_row(x + r * step, to, wide, cols);
      }
    }
    return nullptr;
  });
}
