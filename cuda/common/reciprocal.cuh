// 1 / x by the special-function unit: 1 ulp, denormal numbers taken as 0 (PTX ISA, rcp.approx.ftz.f32).
#pragma once
#include <cuda_runtime.h>

__device__ __forceinline__ float reciprocal_approx(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / x;  // emulated on a CPU
#endif
}
