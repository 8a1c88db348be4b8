// Each weight's row is widened to fp32 once per piece and multiplied with all rows of x; outputs split over the OpenMP
// threads.
#include <vector>

#include "../common/cpu_convert.h"
#include "../common/cpu_eight_bit.h"
#include "../common/cpu_exp.h"
#include "../common/gelu.h"
#include "linear_weight_only.cuh"

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
  if (activation == WEIGHT_ONLY_GELU_ERF) return gelu_erf(v, exp);
  return activation == WEIGHT_ONLY_GELU_TANH ? gelu_tanh(v, exp) : v;
}
}  // namespace

FUSESCOPE_KERNEL(const LinearWeightOnlyArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    const LinearWeightOnlyArgs& a = *args;
    auto bias = static_cast<const T*>(a.bias), residual = static_cast<const T*>(a.residual);
    std::vector<float> x(size_t(a.rows < ROWS ? a.rows : ROWS) * size_t(a.terms));
    for (int64_t first = 0; first < a.rows; first += ROWS) {
      const int64_t rows = a.rows - first < ROWS ? a.rows - first : ROWS;
      for (int64_t r = 0; r < rows; ++r)
        widen(static_cast<const T*>(a.x) + (first + r) * a.x_row, x.data() + r * a.terms, a.terms);
#pragma omp parallel for schedule(static) if (rows * a.outputs * a.terms > 65536)
      for (int64_t n = 0; n < a.outputs; ++n) {
        float sum[ROWS] = {}, weight[PIECE];
        for (int64_t k = 0; k < a.terms; k += PIECE) {
          const int64_t count = a.terms - k < PIECE ? a.terms - k : PIECE;
          widen_weights(a.weight + n * a.weight_row + k, weight, count, a.format);
          for (int64_t r = 0; r < rows; ++r) sum[r] += dot(x.data() + r * a.terms + k, weight, count);
        }
        for (int64_t r = 0; r < rows; ++r) {
          float v = sum[r] * a.scales[n];
          if (bias) v += to_float(bias[n]);
          v = activated(v, a.activation);
          if (residual) v += to_float(residual[(first + r) * a.residual_row + n]);
          static_cast<T*>(a.out)[(first + r) * a.outputs + n] = from_float<T>(v);
        }
      }
    }
    return nullptr;
  });
}
