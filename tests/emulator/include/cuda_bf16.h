// Stands in for CUDA's header of this name: storage and rounding of bf16.
#pragma once
#include "cuda_emulator.h"

#pragma GCC push_options
#pragma GCC optimize("O1")

struct __nv_bfloat16 {
  uint16_t bits;
};
struct __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
inline float __bfloat162float(__nv_bfloat16 h) {
  const uint32_t wide = uint32_t(h.bits) << 16;
  float f;
  std::memcpy(&f, &wide, 4);
  return f;
}
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  uint32_t wide;
  std::memcpy(&wide, &x, 4);
  return {uint16_t(x != x ? 0x7fffu : (wide + 0x7fffu + (wide >> 16 & 1u)) >> 16)};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
inline __nv_bfloat162 __hadd2(__nv_bfloat162 a, __nv_bfloat162 b) {
  return __floats2bfloat162_rn(__bfloat162float(a.x) + __bfloat162float(b.x),
                               __bfloat162float(a.y) + __bfloat162float(b.y));
}

#pragma GCC pop_options
