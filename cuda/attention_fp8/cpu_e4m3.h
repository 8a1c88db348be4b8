// e4m3 on a CPU: sign, four bits of exponent with bias 7, three of fraction; 0x7f is NaN, there is no infinity.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace fp8 {

inline float e4m3_value(uint8_t byte) {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> found;
    for (int b = 0; b < 256; ++b) {
      const int exponent = b >> 3 & 15, fraction = b & 7;
      float v = exponent ? std::ldexp(8.0f + fraction, exponent - 10) : std::ldexp(float(fraction), -9);
      if ((b & 127) == 127) v = NAN;
      found[b] = b & 128 ? -v : v;
    }
    return found;
  }();
  return values[byte];
}

// To nearest, ties to even; beyond +-448 that, NaN stays NaN.
inline uint8_t to_e4m3(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const uint8_t sign = uint8_t(bits >> 24 & 0x80);
  const float size = std::fabs(x);
  if (!(size < 448.f)) return sign | (x != x ? 0x7f : 0x7e);
  if (size < 0x1p-6f) {  // subnormal: multiples of 2^-9, to which the sum with 2^14 is rounded
    const float shifted = size + 0x1p14f;
    std::memcpy(&bits, &shifted, 4);
    return sign | uint8_t(bits & 15);
  }
  bits &= 0x7fffffff;
  bits += 0x7ffff + (bits >> 20 & 1);
  return sign | uint8_t((bits >> 20) - (120 << 3));
}

}  // namespace fp8
