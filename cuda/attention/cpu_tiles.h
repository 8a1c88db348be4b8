// Tiles of 64 keys on the CPU, as attention and packed attention use them: weighted values of four rows at a time.
#pragma once
#include <algorithm>

#include "../common/cpu_block.h"
#include "../common/cpu_softmax.h"

namespace cpu_tiles {
using namespace cpu_block;
constexpr int kTile = 64, kRows = 4;

// o[r] = o[r] shrink[r] + sum over the keys j in [from, to) of p[r][j] v[j], for kRows rows and `Blocks` blocks of
// columns. p has rows of kTile, v and o of `width` floats.
template <int Blocks>
void add_values(const float* p, const float* v, float* o, const float* shrink, int from, int to, int width) {
  Block sum[kRows][Blocks];
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < Blocks; ++c) sum[r][c] = load(o + r * width + c * SIZE) * shrink[r];
  for (int j = from; j < to; ++j) {
    Block value[Blocks];
    for (int c = 0; c < Blocks; ++c) value[c] = load(v + j * width + c * SIZE);
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < Blocks; ++c) sum[r][c] += p[r * kTile + j] * value[c];
  }
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < Blocks; ++c) store(o + r * width + c * SIZE, sum[r][c]);
}

}  // namespace cpu_tiles
