// Stands in for cuda/common/movmatrix.cuh.
#pragma once
#include "mma.cuh"

namespace tensor_core {

inline uint32_t transposed(uint32_t matrix) {
  return emulator::together(matrix, [](auto of) {
    const int row = emulator::lane() / 4, column = emulator::lane() % 4 * 2;  // of the result
    const auto element = [&](int r, int c) { return of(4 * r + c / 2) >> 16 * (c % 2) & 0xffff; };
    return element(column, row) | element(column + 1, row) << 16;
  });
}

}  // namespace tensor_core
