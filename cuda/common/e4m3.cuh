// e4m3 in registers: to fp16, which is exact, and from fp32, two numbers an instruction since sm_89.
#pragma once
#include <cuda_fp16.h>

#include "e4m3.h"

// The four numbers of a word, the lowest byte first, as pairs of fp16. In one asm, so that ptxas reads the upper half
// of the word where it is instead of shifting it down.
__device__ __forceinline__ void e4m3_to_half(uint32_t word, uint32_t (&two)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.rn.f16x2.e4m3x2 %0, low;\n"
      "cvt.rn.f16x2.e4m3x2 %1, high;\n}"
      : "=r"(two[0]), "=r"(two[1])
      : "r"(word));
#else
  for (int i = 0; i < 2; ++i) {
    const __half2 pair =
        __floats2half2_rn(to_float(E4m3{uint8_t(word >> 16 * i)}), to_float(E4m3{uint8_t(word >> (16 * i + 8))}));
    memcpy(&two[i], &pair, 4);
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
