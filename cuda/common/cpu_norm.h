// LayerNorm of a row of fp32, and vectors widened once for all rows: what CPU kernels that norm a sum share.
#pragma once
#include <cmath>
#include <memory>

#include "cpu_convert.h"

namespace fusescope_cpu {

// The sum of f(v[j]) in fp32, in blocks of 4096 whose sums are added in double: long rows keep full fp32 accuracy.
template <typename F> inline double blocked_sum(const float* v, int64_t cols, F f) {
  double total = 0.0;
  for (int64_t from = 0; from < cols; from += 4096) {
    const int64_t to = from + 4096 < cols ? from + 4096 : cols;
    float part = 0.0f;
#pragma omp simd reduction(+ : part)
    for (int64_t j = from; j < to; ++j) part += f(v[j]);
    total += part;
  }
  return total;
}

// LayerNorm of v with the care for means far from zero of cuda/layernorm/layernorm.cuh. out may be v.
inline void normalise(const float* v, const float* weight, const float* shift, float* out, int64_t cols, float eps) {
  const float first = v[0];
  const float mean =
      float(blocked_sum(v, cols, [first](float x) { return x - first; }) / double(cols));  // of what is left
  const double variance =
      blocked_sum(v, cols, [=](float x) { return (x - first - mean) * (x - first - mean); }) / double(cols);
  const float scale = float(1.0 / std::sqrt(variance + double(eps)));
#pragma omp simd
  for (int64_t j = 0; j < cols; ++j) out[j] = (v[j] - first - mean) * scale * weight[j] + shift[j];
}

// A vector as fp32: itself or a copy; nullptr stays nullptr.
template <typename T> struct Widened {
  std::unique_ptr<float[]> copy;
  const float* data = nullptr;
  Widened(const void* from, int64_t count) {
    if (!from) return;
    if constexpr (sizeof(T) == 4) {
      data = static_cast<const float*>(from);
    } else {
      copy.reset(new float[count]);
      widen(static_cast<const T*>(from), copy.get(), count);
      data = copy.get();
    }
  }
};

}  // namespace fusescope_cpu
