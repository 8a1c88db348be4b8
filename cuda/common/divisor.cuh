// Division of numbers below 2^31 by one that the host knows, as a product and a shift: no reciprocal to wait for.
//
// With s the smallest so that d <= 2^s and m = ceil(2^(31 + s) / d), n / d is n m / 2^(31 + s) rounded down: m exceeds
// 2^(31 + s) / d by less than 2^s / d, which n < 2^31 makes less than 1 / d of the quotient.
#pragma once
#include <cuda_runtime.h>
#include <stdint.h>

struct Divisor {
  uint32_t value, multiplier, shift;

  explicit Divisor(int32_t d) : value(uint32_t(d)), shift(31) {  // d >= 1
    while ((uint64_t(1) << (shift - 31)) < value) ++shift;
    multiplier = uint32_t(((uint64_t(1) << shift) + value - 1) / value);
  }
  __device__ __forceinline__ uint32_t quotient(uint32_t n) const {
    return uint32_t((uint64_t(n) * multiplier) >> shift);
  }
};
