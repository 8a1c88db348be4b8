// exp for vectorised loops: plain arithmetic without branches or calls, so that compilers turn it into vector code.
#pragma once
#include <cstdint>
#include <cstring>

namespace fusescope_cpu {

// e^x to about 1.5 ulp for x <= 88; below -87.3 (results under 2^-126) it gives 0, and NaN gives NaN.
// x = n ln 2 + r with |r| <= ln 2 / 2 (ln 2 in two parts, so that n ln 2 is subtracted exactly), then a polynomial in r
// of degree 6 (Taylor coefficients: the remainder r^7 / 5040 is 1.2e-7 of the result at the ends) and n added to the
// exponent.
inline float fast_exp(float x) {
  const float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number, which is then in the low bits
  const float kept = x < -87.0f ? -87.0f : x;
  const float moved = kept * 1.44269504088896f + shift, n = moved - shift;
  const float r = (kept - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  int32_t exponent;
  std::memcpy(&exponent, &moved, 4);
  const int32_t scale_bits = (exponent + 127) << 23;
  float scale;
  std::memcpy(&scale, &scale_bits, 4);
  const float result = p * scale;
  return x < -87.0f ? 0.0f : (x != x ? x : result);
}

}  // namespace fusescope_cpu
