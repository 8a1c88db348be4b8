// 2^x by the special-function unit: 2 ulp, denormal results flushed to 0 (PTX ISA, ex2.approx.ftz.f32).
#pragma once
#include <cuda_runtime.h>

constexpr float kLog2e = 1.4426950408889634f;  // e^x = 2^(x kLog2e)

__device__ __forceinline__ float exp2_approx(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);  // emulated on a CPU
#endif
}
