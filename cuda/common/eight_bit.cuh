// Four 8-bit weights of a 32-bit word, the lowest byte first, as 16-bit or fp32 numbers: exact, in registers.
#pragma once
#include <stdint.h>

#include "e4m3.cuh"
#include "eight_bit.h"
#include "launch.cuh"
#include "mma.cuh"

namespace {

__device__ __forceinline__ __half2 as_half2(uint32_t bits) { return reinterpret_cast<__half2&>(bits); }
__device__ __forceinline__ uint32_t as_bits(__half2 pair) { return reinterpret_cast<uint32_t&>(pair); }

// The bytes b of int8 as fp16: with its sign bit turned a byte is u = b + 128, and 0x6400 | u is 1024 + u.
__device__ __forceinline__ void int8_to_half(uint32_t word, uint32_t (&two)[2]) {
  const uint32_t u = word ^ 0x80808080u;
  two[0] = as_bits(__hsub2(as_half2(__byte_perm(u, 0x64646464u, 0x4140)), as_half2(0x64806480u)));
  two[1] = as_bits(__hsub2(as_half2(__byte_perm(u, 0x64646464u, 0x4342)), as_half2(0x64806480u)));
}

template <int Format> __device__ __forceinline__ void four_floats(uint32_t word, float (&f)[4]) {
  if constexpr (Format == WEIGHT_INT8) {
    const uint32_t u = word ^ 0x80808080u;  // 0x4b000000 | u is 2^23 + u
#pragma unroll
    for (int i = 0; i < 4; ++i) f[i] = __uint_as_float(__byte_perm(u, 0x4b000000u, 0x7550 + i)) - 8388736.0f;
  } else {
    uint32_t two[2];
    e4m3_to_half(word, two);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const __half2 pair = as_half2(two[i]);
      f[2 * i] = to_float(pair.x), f[2 * i + 1] = to_float(pair.y);
    }
  }
}

// T: __half or __nv_bfloat16, two in a register. bf16's eight bits of fraction hold every int8 and e4m3.
template <int Format, typename T> __device__ __forceinline__ void four_pairs(uint32_t word, uint32_t (&two)[2]) {
  if constexpr (sizeof(T) == 2 && std::is_same_v<T, __half>) {
    if constexpr (Format == WEIGHT_INT8)
      int8_to_half(word, two);
    else
      e4m3_to_half(word, two);
  } else {
    float f[4];
    four_floats<Format>(word, f);
    two[0] = tensor_core::pack<T>(f[0], f[1]), two[1] = tensor_core::pack<T>(f[2], f[3]);
  }
}

template <int Format> __device__ __forceinline__ float one_float(uint8_t byte) {
  float f[4];
  four_floats<Format>(byte, f);
  return f[0];
}
}  // namespace
