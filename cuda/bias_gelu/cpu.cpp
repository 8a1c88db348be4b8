// One vectorised pass, the exponential inlined; rows, or chunks of long rows, split over the OpenMP threads.
#include "../common/cpu_convert.h"
#include "../common/cpu_exp.h"
#include "../common/gelu.h"
#include "bias_gelu.cuh"

using namespace fusescope_cpu;

namespace {
constexpr int64_t PIECE =
    1024;  // elements of a row that one thread takes at a time: fp32 copies of them stay in the first-level cache

template <bool Tanh> void gelu_of(const float* x, const float* bias, float* out, int64_t count) {
  auto gelu = [](float v) {
    auto exp = [](float u) { return fast_exp(u); };
    if constexpr (Tanh)
      return gelu_tanh(v, exp);
    else
      return gelu_erf(v, exp);
  };
  if (bias) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) out[j] = gelu(x[j] + bias[j]);
  } else {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) out[j] = gelu(x[j]);
  }
}

template <bool Tanh, typename T> void piece(const T* x, const T* bias, T* out, int64_t count) {
  if constexpr (sizeof(T) == 4) {
    gelu_of<Tanh>(x, bias, out, count);
  } else {
    float wide[PIECE], wide_bias[PIECE];
    widen(x, wide, count);
    if (bias) widen(bias, wide_bias, count);
    gelu_of<Tanh>(wide, bias ? wide_bias : nullptr, wide, count);
    narrow(wide, out, count);
  }
}
}  // namespace

FUSESCOPE_KERNEL(const BiasGeluArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    auto x = static_cast<const T*>(args->x), bias = static_cast<const T*>(args->bias);
    auto out = static_cast<T*>(args->out);
    const int64_t rows = args->rows, cols = args->cols, pieces = (cols + PIECE - 1) / PIECE;
#pragma omp parallel for schedule(static) if (rows * cols > 8192)
    for (int64_t i = 0; i < rows * pieces; ++i) {
      const int64_t r = i / pieces, from = i % pieces * PIECE, count = cols - from < PIECE ? cols - from : PIECE;
      auto on = args->tanh ? piece<true, T> : piece<false, T>;
      on(x + r * args->x_row + from, bias ? bias + from : nullptr, out + r * cols + from, count);
    }
    return nullptr;
  });
}
