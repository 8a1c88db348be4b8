// e4m3 in registers: to fp16, which is exact, and from fp32, two numbers an instruction since sm_89.
#pragma once
#include <cuda_fp16.h>

#include "e4m3.h"

// The four numbers of a word, the lowest byte first, as pairs of fp16. In one asm, so that ptxas reads the upper half
// of the word where it is instead of shifting it down. Before sm_89 sign, exponent and fraction go to their places and
// the other bias of the exponent is a factor of 2^8, which makes subnormal numbers normal too; 0x7f is NaN.
__device__ __forceinline__ void e4m3_to_half(uint32_t word, uint32_t (&two)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.rn.f16x2.e4m3x2 %0, low;\n"
      "cvt.rn.f16x2.e4m3x2 %1, high;\n}"
      : "=r"(two[0]), "=r"(two[1])
      : "r"(word));
#else
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t wide = __byte_perm(word, 0, i ? 0x3424 : 0x1404);  // each byte above a zero byte
    const uint32_t size = (wide & 0x7f007f00u) >> 1, nan = (size + 0x00800080u) & 0x40004000u;
    const uint32_t bits = (wide & 0x80008000u) | size | nan | (nan - (nan >> 14));
    const uint32_t by = 0x5c005c00u;  // 2^8
    const __half2 pair = __hmul2(reinterpret_cast<const __half2&>(bits), reinterpret_cast<const __half2&>(by));
    two[i] = reinterpret_cast<const uint32_t&>(pair);
  }
#endif
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
