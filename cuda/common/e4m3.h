// fp8 numbers of the format e4m3 as storage, in kernels and on the CPU: sign, 4 bits of exponent with bias 7, 3 of
// fraction; the largest is 448, 0x7f and 0xff are NaN, infinity there is none.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define FUSESCOPE_HOST_DEVICE __host__ __device__
#else
#define FUSESCOPE_HOST_DEVICE
#endif

struct E4m3 {
  uint8_t bits;
};

// Added to the FusescopeDtype of a call whose KV cache is of e4m3 with scales. No FusescopeDtype has this bit, so
// dispatch() refuses it, and a kernel that does not know of it never touches such a cache.
constexpr int32_t kE4m3Cache = 1 << 8;

// To nearest, ties to even; beyond the largest the largest, infinities too; NaN stays NaN.
FUSESCOPE_HOST_DEVICE inline E4m3 e4m3_of(float x) {
  uint32_t wide;
  memcpy(&wide, &x, 4);
  const uint32_t size = wide & 0x7fffffffu, sign = wide >> 24 & 0x80u;
  if (size > 0x7f800000u) return {0x7f};
  if (size >= 0x43e00000u) return {uint8_t(sign | 0x7e)};  // 448
  if (size >= 0x3c800000u)                                 // 2^-6, the smallest normal number
    return {uint8_t(sign | (((size + 0x7ffffu + (size >> 20 & 1)) >> 20) - (120u << 3)))};
  const float shifted = fabsf(x) + 16384.0f;  // its last bit is 2^-9, the last of subnormal numbers
  memcpy(&wide, &shifted, 4);
  return {uint8_t(sign | (wide - 0x46800000u))};
}

// Without branches or tables, so that compilers vectorise it.
FUSESCOPE_HOST_DEVICE inline float to_float(E4m3 x) {
  const uint32_t size = x.bits & 0x7fu, sign = uint32_t(x.bits & 0x80u) << 24;
  const float small = float(int32_t(size)) * 0x1p-9f;  // below 8 a subnormal number
  uint32_t few, bits = (size << 20) + (120u << 23);    // the other bias of the exponent
  memcpy(&few, &small, 4);
  bits = size < 8 ? few : bits;
  bits = sign | (size == 0x7fu ? 0x7fc00000u : bits);
  float found;
  memcpy(&found, &bits, 4);
  return found;
}
