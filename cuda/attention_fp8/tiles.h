// Where a number lies in a quantised tile: rows or columns swizzled as wgmma reads them, keys of V permuted.
#pragma once
#include "../common/swizzle.cuh"
#include "attention_fp8.cuh"

namespace fp8 {

constexpr float kLargest = 448.f;  // of e4m3

// Byte of (row, column) of a tile of q or k.
template <int D> SWIZZLE_FUNCTION uint32_t row_byte(int row, int column) {
  return swizzled<D>(uint32_t(row), uint32_t(column) / 16) + uint32_t(column) % 16;
}

// P V sums over keys in any order, so V's keys may lie in one that makes the accumulators of Q K^T, rounded to e4m3 in
// the registers that hold them, the left operand of P V. A thread t of four holds of each 16 keys the scores of 2 t,
// 2 t + 1, 2 t + 8 and 2 t + 9, and gives the operand's columns 4 t to 4 t + 3:
//   place      0 1 2 3   4 5  6  7   8 9 10 11  12 13 14 15
//   holds key  0 1 8 9   2 3 10 11   4 5 12 13   6  7 14 15
SWIZZLE_FUNCTION int place_of_key(int key) {
  const int in16 = key % 16;
  return key - in16 + in16 % 8 / 2 * 4 + in16 / 8 * 2 + in16 % 2;
}

// Byte of (column, key) of a tile of v.
SWIZZLE_FUNCTION uint32_t value_byte(int column, int key) {
  const int place = place_of_key(key);
  return swizzled<64>(uint32_t(column), uint32_t(place) / 16) + uint32_t(place) % 16;
}

}  // namespace fp8
