// torch's own product with bias (MKL or oneDNN); activation and residual in one vectorised pass over its result, in
// place.
#include "../common/cpu_convert.h"
#include "../common/cpu_exp.h"
#include "../common/gelu.h"
#include "linear.cuh"

using namespace fusescope_cpu;

namespace {
constexpr int64_t PIECE = 1024;  // elements of a row that one thread takes at a time

void finish(float* v, const float* residual, int32_t activation, int64_t count) {
  auto exp = [](float u) { return fast_exp(u); };
  if (activation == LINEAR_GELU_ERF) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) v[j] = gelu_erf(v[j], exp);
  } else if (activation == LINEAR_GELU_TANH) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) v[j] = gelu_tanh(v[j], exp);
  }
  if (residual) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) v[j] += residual[j];
  }
}

template <typename T> void piece(T* out, const T* residual, int32_t activation, int64_t count) {
  if constexpr (sizeof(T) == 4) {
    finish(out, residual, activation, count);
  } else {
    float v[PIECE], add[PIECE];
    widen(out, v, count);
    if (residual) widen(residual, add, count);
    finish(v, residual ? add : nullptr, activation, count);
    narrow(v, out, count);
  }
}
}  // namespace

FUSESCOPE_KERNEL(const LinearArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    auto out = static_cast<T*>(args->out);
    auto residual = static_cast<const T*>(args->residual);
    const int64_t rows = args->rows, cols = args->outputs, pieces = (cols + PIECE - 1) / PIECE;
#pragma omp parallel for schedule(static) if (rows * cols > 8192)
    for (int64_t i = 0; i < rows * pieces; ++i) {
      const int64_t r = i / pieces, from = i % pieces * PIECE, count = cols - from < PIECE ? cols - from : PIECE;
      piece(out + r * cols + from, residual ? residual + r * args->residual_row + from : nullptr, args->activation,
            count);
    }
    return nullptr;
  });
}
