// Transposes 8 x 8 matrices of 16-bit elements across the lanes of a warp (sm_75 and newer).
#pragma once
#include <stdint.h>

namespace tensor_core {
// Lane l holds row l / 4, elements 2 (l % 4) and the next, as ldmatrix leaves a matrix; the result is the transposed
// one in the same layout.
__device__ __forceinline__ uint32_t transposed(uint32_t matrix) {
  uint32_t turned;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(matrix));
  return turned;
}
}  // namespace tensor_core
