// Signs and size of the rotation of q and k (attention_fp8.cuh).
#pragma once
#include "../common/swizzle.cuh"

namespace fp8 {

// +1 or -1: without signs a constant row would become one large number.
SWIZZLE_FUNCTION float sign_of_column(int column) {
  return (uint32_t(column + 1) * 2654435761u >> 16 & 1) ? -1.f : 1.f;
}
// 1 / sqrt(D)
template <int D> SWIZZLE_FUNCTION float norm_of() { return D == 64 ? 0.125f : 0.08838834764831845f; }

}  // namespace fp8
