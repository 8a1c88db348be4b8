// Stands in for CUDA's header of this name: storage and rounding of fp16.
#pragma once
#include "cuda_emulator.h"

#pragma GCC push_options
#pragma GCC optimize("O1")

struct __half {
  uint16_t bits;
};
struct __half2 {
  __half x, y;
};
inline float __half2float(__half h) {
  _Float16 f;
  std::memcpy(&f, &h, 2);
  return float(f);
}
inline __half __float2half_rn(float x) {
  const _Float16 f = _Float16(x);
  __half h;
  std::memcpy(&h, &f, 2);
  return h;
}
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline __half2 __hadd2(__half2 a, __half2 b) {
  return __floats2half2_rn(__half2float(a.x) + __half2float(b.x), __half2float(a.y) + __half2float(b.y));
}
inline __half2 __hsub2(__half2 a, __half2 b) {
  return __floats2half2_rn(__half2float(a.x) - __half2float(b.x), __half2float(a.y) - __half2float(b.y));
}
inline __half2 __hmul2(__half2 a, __half2 b) {
  return __floats2half2_rn(__half2float(a.x) * __half2float(b.x), __half2float(a.y) * __half2float(b.y));
}

#pragma GCC pop_options
