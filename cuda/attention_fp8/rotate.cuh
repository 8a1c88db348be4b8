// An orthogonal matrix on rows of q and k: signs, then a Hadamard matrix, by additions in registers and shuffles.
#pragma once
#include "rotation.h"
#include <cuda_runtime.h>

namespace fp8 {

// By D / 8 neighbouring lanes: x, columns 8 chunk to 8 chunk + 7 of a row, becomes those of the product.
template <int D> __device__ __forceinline__ void rotate_row(float (&x)[8], int chunk) {
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] *= sign_of_column(8 * chunk + i) * norm_of<D>();
#pragma unroll
  for (int distance = 1; distance < 8; distance <<= 1)
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i & distance) continue;
      const float low = x[i], high = x[i | distance];
      x[i] = low + high, x[i | distance] = low - high;
    }
#pragma unroll
  for (int distance = 1; distance < D / 8; distance <<= 1) {
    const float sign = chunk & distance ? -1.f : 1.f;
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = __shfl_xor_sync(0xffffffffu, x[i], distance) + sign * x[i];
  }
}

}  // namespace fp8
