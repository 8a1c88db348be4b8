// Three vectorised passes over a row that stays in cache (mean, variance about it, result); rows split over the OpenMP
// threads.
#include <cmath>
#include <type_traits>

#include "../common/cpu.h"
#include "layernorm.cuh"

using namespace fusescope_cpu;

namespace {
// The sum of f(x[j]) in fp32, in blocks of 4096 whose sums are added in double: long rows keep full fp32 accuracy.
template <typename T, typename F> double sum_of(const T* x, int64_t cols, F f) {
  double total = 0.0;
  for (int64_t from = 0; from < cols; from += 4096) {
    const int64_t to = from + 4096 < cols ? from + 4096 : cols;
    float part = 0.0f;
#pragma omp simd reduction(+ : part)
    for (int64_t j = from; j < to; ++j) part += f(to_float(x[j]));
    total += part;
  }
  return total;
}

template <typename T> void layernorm_row(const T* x, const T* weight, const T* bias, T* out, int64_t cols, float eps) {
  const float first = to_float(x[0]);
  const float mean =
      float(sum_of(x, cols, [first](float v) { return v - first; }) / double(cols));  // of what is left without it
  const double variance =
      sum_of(x, cols, [=](float v) { return (v - first - mean) * (v - first - mean); }) / double(cols);
  const float scale = float(1.0 / std::sqrt(variance + double(eps)));
  auto write = [=](auto with_weight, auto with_bias) {
#pragma omp simd
    for (int64_t j = 0; j < cols; ++j) {
      float v = (to_float(x[j]) - first - mean) * scale;
      if constexpr (decltype(with_weight)::value) v *= to_float(weight[j]);
      if constexpr (decltype(with_bias)::value) v += to_float(bias[j]);
      out[j] = from_float<T>(v);
    }
  };
  using Yes = std::true_type;
  using No = std::false_type;
  if (weight)
    bias ? write(Yes{}, Yes{}) : write(Yes{}, No{});
  else
    bias ? write(No{}, Yes{}) : write(No{}, No{});
}
}  // namespace

FUSESCOPE_KERNEL(const LayernormArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    auto x = static_cast<const T*>(args->x);
    auto weight = static_cast<const T*>(args->weight);
    auto bias = static_cast<const T*>(args->bias);
    auto out = static_cast<T*>(args->out);
    const int64_t rows = args->rows, cols = args->cols, step = args->x_row;
#pragma omp parallel for schedule(static) if (rows > 1 && rows * cols > 8192)
    for (int64_t r = 0; r < rows; ++r) layernorm_row(x + r * step, weight, bias, out + r * cols, cols, args->eps);
    return nullptr;
  });
}
