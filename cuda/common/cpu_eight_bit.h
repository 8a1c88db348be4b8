// Runs of 8-bit weights to fp32, without their scales.
#pragma once
#include "cpu.h"
#include "e4m3.h"
#include "eight_bit.h"

namespace fusescope_cpu {

// format: a WeightFormat.
inline void widen_weights(const uint8_t* from, float* to, int64_t count, int32_t format) {
  if (format == WEIGHT_INT8) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] = float(int8_t(from[i]));
  } else {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] = to_float(E4m3{from[i]});
  }
}

}  // namespace fusescope_cpu
