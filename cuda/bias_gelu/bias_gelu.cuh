// GELU of a sum: out[r, j] = gelu(x[r, j] + bias[j]), in the form with erf or in the one with tanh.
//
// With erf: gelu(v) = v Phi(v), Phi the normal distribution function. What is computed is the tail q(a) = Phi(-a), a =
// |v|:
//   q(a) = exp(-a^2 / 2) P(t), t = 1 / (1 + 0.3 a),   gelu(v) = v (1 - q) for v >= 0, v q for v < 0,
// so that no two nearly equal numbers are subtracted and small results keep their relative accuracy. P is a polynomial
// of degree 8 without constant term, fitted to erfcx(a / sqrt 2) / 2 by least squares reweighted towards the largest
// relative error, which is 1.2e-7 for a from 0 to 13 (beyond, the result is below 1e-36). With tanh: v / 2 (1 +
// tanh(sqrt(2 / pi) (v + 0.044715 v^3))) = v / (1 + exp(-2 sqrt(2 / pi) (v + 0.044715 v^3))).
#pragma once
#include "../common/interface.h"

struct BiasGeluArgs {
  const void* x;     // row r begins at x[r * x_row]; its cols elements are contiguous
  const void* bias;  // cols elements, or nullptr for zeros
  void* out;         // rows x cols elements, dense, never aliasing x
  int64_t rows;      // >= 1
  int64_t cols;      // >= 1
  int64_t x_row;     // distance between rows in elements, >= 0
  int32_t tanh;      // 0: with erf; 1: with tanh
  int32_t dtype;     // FusescopeDtype of x, bias and out
};
