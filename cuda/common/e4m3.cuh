// e4m3 in registers: to fp16, which is exact, and from fp32; one instruction for two numbers since sm_89.
#pragma once
#include <cuda_fp16.h>

#include "e4m3.h"

// Four numbers of a word, the lowest byte first, as fp16. Before sm_89, sign, exponent and fraction go to their places
// and the other bias of the exponent is a factor of 2^8, which makes subnormal numbers normal too; 0x7f is NaN.
__device__ __forceinline__ void e4m3_to_half(uint32_t word, uint32_t (&two)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(two[0]) : "h"(uint16_t(word)));
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(two[1]) : "h"(uint16_t(word >> 16)));
#else
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t wide = __byte_perm(word, 0, i ? 0x3424 : 0x1404);  // each byte above a zero byte
    const uint32_t size = (wide & 0x7f007f00u) >> 1, nan = (size + 0x00800080u) & 0x40004000u;
    const uint32_t bits = (wide & 0x80008000u) | size | nan | (nan - (nan >> 14));
    const uint32_t factor = 0x5c005c00u;
    const __half2 pair = __hmul2(reinterpret_cast<const __half2&>(bits), reinterpret_cast<const __half2&>(factor));
    two[i] = reinterpret_cast<const uint32_t&>(pair);
  }
#endif
}

__device__ __forceinline__ float to_float(E4m3 x) {
  uint32_t two[2];
  e4m3_to_half(x.bits, two);
  return __half2float(reinterpret_cast<const __half2&>(two[0]).x);
}

// To nearest, ties to even, saturating; NaN stays NaN.
__device__ __forceinline__ E4m3 to_e4m3(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t two;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.f), "f"(x));
  return {uint8_t(two)};
#else
  return e4m3_of(x);
#endif
}
