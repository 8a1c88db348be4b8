// Whether there is a NaN among numbers of 16 bits, two in a word, at one addition per word.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

// The sum of all words, which is NaN in a half where one of its numbers is. (So it is with infinities of both signs.)
template <typename T> struct NanWatch {
  using Two = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
  uint32_t sum = 0;

  __device__ __forceinline__ void add(uint32_t word) {
    Two all, two;
    memcpy(&all, &sum, 4);
    memcpy(&two, &word, 4);
    all = __hadd2(all, two);
    memcpy(&sum, &all, 4);
  }
  // 0 and the largest bits of an infinity, without the sign, are below those of a NaN.
  __device__ __forceinline__ bool found() const {
    constexpr uint32_t kInfinity = std::is_same_v<T, __half> ? 0x7c00 : 0x7f80;
    return (sum & 0x7fff) > kInfinity || (sum >> 16 & 0x7fff) > kInfinity;
  }
};
