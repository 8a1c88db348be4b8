// What every CPU kernel needs: 16-bit floats as storage types with conversions to and from fp32 that compilers
// vectorise.
#pragma once
#include <cstring>

#include "interface.h"

namespace fusescope_cpu {

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

inline float to_float(float x) { return x; }
inline float to_float(BFloat16 x) {
  uint32_t wide = uint32_t(x.bits) << 16;
  float f;
  std::memcpy(&f, &wide, 4);
  return f;
}
inline float to_float(Half x) {
  _Float16 h;
  std::memcpy(&h, &x.bits, 2);
  return static_cast<float>(h);
}

template <typename T> inline T from_float(float x);
template <> inline float from_float<float>(float x) { return x; }
template <> inline BFloat16 from_float<BFloat16>(float x) {
  uint32_t wide;
  std::memcpy(&wide, &x, 4);
  uint32_t rounded = (wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16;  // to nearest, ties to even
  return BFloat16{uint16_t(x != x ? 0x7fc0u : rounded)};
}
template <> inline Half from_float<Half>(float x) {
  _Float16 h = static_cast<_Float16>(x);
  Half out;
  std::memcpy(&out.bits, &h, 2);
  return out;
}

// Calls body with a value of the storage type that a FusescopeDtype names.
template <typename Body> inline const char* dispatch(int dtype, Body body) {
  switch (dtype) {
    case FS_FLOAT32:
      return body(float{});
    case FS_FLOAT16:
      return body(Half{});
    case FS_BFLOAT16:
      return body(BFloat16{});
  }
  return "unsupported: dtype (float32, float16 and bfloat16 are)";
}

}  // namespace fusescope_cpu
