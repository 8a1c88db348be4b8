// Softmax on the CPU: of a whole row, and online over one tile of scores after another.
#pragma once
#include <limits>

#include "cpu.h"
#include "cpu_exp.h"

namespace fusescope_cpu {

constexpr float kNone = -std::numeric_limits<float>::infinity();  // the score of a masked key

// out[j] = softmax of at(j) over j < count, in three vectorised passes over a row that stays in cache. `wide` holds
// count floats for the exponentials; it is `out` itself where that is fp32.
template <typename T, typename At> inline void softmax_row(At at, T* out, float* wide, int64_t count) {
  float highest = kNone;
#pragma omp simd reduction(max : highest)
  for (int64_t j = 0; j < count; ++j) {
    const float v = at(j);
    highest = v > highest ? v : highest;
  }
  double total = 0.0;  // of blocks of 4096 summed in fp32: long rows keep full fp32 accuracy
  for (int64_t from = 0; from < count; from += 4096) {
    const int64_t to = from + 4096 < count ? from + 4096 : count;
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = from; j < to; ++j) {
      const float e = fast_exp(at(j) - highest);
      wide[j] = e;
      sum += e;
    }
    total += sum;
  }
  const float scale = float(1.0 / total);
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) out[j] = from_float<T>(wide[j] * scale);
}

// Online softmax of one row: scores[0 .. count) become weights, maximum and sum include them. Returns the factor by
// which what was accumulated before shrinks. Exp: e^x or 2^x.
template <float (*Exp)(float)> inline float weigh(float* scores, int count, float& maximum, float& sum) {
  float top = maximum, total = 0.f;
#pragma omp simd reduction(max : top)
  for (int j = 0; j < count; ++j) top = scores[j] > top ? scores[j] : top;
  const float base = top == kNone ? 0.f : top;  // -inf minus -inf would be NaN
#pragma omp simd reduction(+ : total)
  for (int j = 0; j < count; ++j) {
    scores[j] = Exp(scores[j] - base);
    total += scores[j];
  }
  const float shrink = Exp(maximum - base);
  sum = sum * shrink + total;
  maximum = top;
  return shrink;
}

}  // namespace fusescope_cpu
