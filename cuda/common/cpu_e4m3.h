// e4m3 to fp32 for CPU kernels, without branches or tables, so that compilers vectorise it.
#pragma once
#include <cstring>

#include "e4m3.h"

// Beside E4m3, where templates find it.
inline float to_float(E4m3 x) {
  const uint32_t size = x.bits & 0x7fu, sign = uint32_t(x.bits & 0x80u) << 24;
  const float small = float(int32_t(size)) * 0x1p-9f;  // below 8 a subnormal number
  uint32_t few, bits = (size << 20) + (120u << 23);    // the other bias of the exponent
  std::memcpy(&few, &small, 4);
  bits = size < 8 ? few : bits;
  bits = sign | (size == 0x7fu ? 0x7fc00000u : bits);
  float found;
  std::memcpy(&found, &bits, 4);
  return found;
}
