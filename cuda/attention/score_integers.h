// Integers of a score expression, on the device and on the CPU alike, by the SCORE_FUNCTION of the header that includes
// this one (score.cuh, cpu_score.h).
#pragma once
#include <cstdint>

namespace score_math {
// Python's // and %, rounded down; b > 0.
template <typename Integer> SCORE_FUNCTION Integer floor_divided(Integer a, int64_t b) {
  const Integer by = Integer(b), quotient = a / by;
  return quotient - (a % by < 0);
}
template <typename Integer> SCORE_FUNCTION Integer floor_remainder(Integer a, int64_t b) {
  const Integer by = Integer(b), left = a % by;
  return left < 0 ? left + by : left;
}
SCORE_FUNCTION int abs(int x) { return x < 0 ? -x : x; }
SCORE_FUNCTION int64_t abs(int64_t x) { return x < 0 ? -x : x; }
SCORE_FUNCTION int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
SCORE_FUNCTION int64_t largest(int64_t a, int64_t b) { return a > b ? a : b; }
SCORE_FUNCTION int least(int a, int b) { return a < b ? a : b; }
SCORE_FUNCTION int largest(int a, int b) { return a > b ? a : b; }
}  // namespace score_math
