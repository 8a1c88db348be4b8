// One vectorised pass, the exponential inlined; rows, or chunks of long rows, split over the OpenMP threads.
#include "../common/cpu_convert.h"
#include "../common/cpu_exp.h"
#include "../common/silu.h"
#include "swiglu.cuh"

using namespace fusescope_cpu;

namespace {
constexpr int64_t PIECE = 1024;  // elements that a thread takes at a time: fp32 copies stay in the first-level cache

void multiply(const float* gate, const float* up, float* out, int64_t count) {
  auto exp = [](float x) { return fast_exp(x); };
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) out[j] = silu(gate[j], exp) * up[j];
}

template <typename T> void piece(const T* gate, const T* up, T* out, int64_t count) {
  if (count < 1) return;
  if constexpr (sizeof(T) == 4) {
    multiply(gate, up, out, count);
  } else {
    float wide[PIECE], factor[PIECE];
    widen(gate, wide, count);
    widen(up, factor, count);
    multiply(wide, factor, wide, count);
    narrow(wide, out, count);
  }
}
}  // namespace

FUSESCOPE_KERNEL(const SwigluArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    auto gate = static_cast<const T*>(args->gate), up = static_cast<const T*>(args->up);
    auto out = static_cast<T*>(args->out);
    const int64_t rows = args->rows, cols = args->cols, pieces = (cols + PIECE - 1) / PIECE;
#pragma omp parallel for schedule(static) if (rows * cols > 8192)
    for (int64_t i = 0; i < rows * pieces; ++i) {
      const int64_t r = i / pieces, from = i % pieces * PIECE, count = cols - from < PIECE ? cols - from : PIECE;
      piece(gate + r * args->gate_row + from, up + r * args->up_row + from, out + r * cols + from, count);
    }
    return nullptr;
  });
}
