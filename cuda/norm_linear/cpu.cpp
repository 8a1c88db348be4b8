// Rows are normed first, rounded as a kernel of its own would store them; then each weight's row is multiplied with all
// of them, outputs split over the OpenMP threads.
#include <cmath>
#include <vector>

#include "../common/cpu_exp.h"
#include "../common/cpu_norm.h"
#include "../common/gelu.h"
#include "norm_linear.cuh"

using namespace fusescope_cpu;

namespace {
constexpr int64_t PIECE = 1024, ROWS = 64;  // columns, and rows of x whose sums a thread keeps

float dot(const float* a, const float* b, int64_t count) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t k = 0; k < count; ++k) sum += a[k] * b[k];
  return sum;
}

float activated(float v, int32_t activation) {
  auto exp = [](float u) { return fast_exp(u); };
  if (activation == NORM_LINEAR_GELU_ERF) return gelu_erf(v, exp);
  return activation == NORM_LINEAR_GELU_TANH ? gelu_tanh(v, exp) : v;
}

// `row` normed in place; its elements are then those of T.
template <typename T>
void norm_row(float* row, const float* scale, const float* shift, T* stored, int64_t cols, float eps) {
  if (shift) {
    normalise(row, scale, shift, row, cols, eps);
  } else {
    const double squares = blocked_sum(row, cols, [](float v) { return v * v; });
    const float by = float(1.0 / std::sqrt(squares / double(cols) + double(eps)));
#pragma omp simd
    for (int64_t j = 0; j < cols; ++j) row[j] = row[j] * by * scale[j];
  }
  if constexpr (sizeof(T) != 4) {
    narrow(row, stored, cols);
    widen(stored, row, cols);
  }
}
}  // namespace

FUSESCOPE_KERNEL(const NormLinearArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    const NormLinearArgs& a = *args;
    const Widened<T> scale(a.scale, a.terms), shift(a.shift, a.terms);
    auto bias = static_cast<const T*>(a.bias), weight = static_cast<const T*>(a.weight);
    std::vector<float> x(size_t(a.rows < ROWS ? a.rows : ROWS) * size_t(a.terms));
    for (int64_t first = 0; first < a.rows; first += ROWS) {
      const int64_t rows = a.rows - first < ROWS ? a.rows - first : ROWS;
#pragma omp parallel if (rows * a.outputs * a.terms > 65536)
      {
        std::vector<T> stored(static_cast<size_t>(a.terms));
#pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; ++r) {
          float* const row = x.data() + r * a.terms;
          widen(static_cast<const T*>(a.x) + (first + r) * a.x_row, row, a.terms);
          norm_row(row, scale.data, shift.data, stored.data(), a.terms, a.eps);
        }
#pragma omp for schedule(static)
        for (int64_t n = 0; n < a.outputs; ++n) {
          float sum[ROWS] = {}, piece[PIECE];
          for (int64_t k = 0; k < a.terms; k += PIECE) {
            const int64_t count = a.terms - k < PIECE ? a.terms - k : PIECE;
            widen(weight + n * a.weight_row + k, piece, count);
            for (int64_t r = 0; r < rows; ++r) sum[r] += dot(x.data() + r * a.terms + k, piece, count);
          }
          for (int64_t r = 0; r < rows; ++r) {
            const float whole = sum[r] + (bias ? to_float(bias[n]) : 0.0f);
            static_cast<T*>(a.out)[(first + r) * a.outputs + n] = from_float<T>(activated(whole, a.activation));
          }
        }
      }
    }
    return nullptr;
  });
}
