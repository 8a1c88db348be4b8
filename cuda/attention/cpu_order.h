// The order of rows and keys inside the tiles of attention on the CPU: unchanged, or strided-permuted, which under
// strided masks puts the rows and keys of a residue class side by side and leaves whole blocks of keys empty.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention.cuh"
#include "cpu_tiles.h"
#include "scored.h"

namespace cpu_tiles {
static_assert(kTile == ATTENTION_TILE);

// Rows and keys sorted by their residue modulo `modulus`, a divisor of 64; 1: unchanged.
struct StridedOrder {
  int modulus = 1;
  Order row_at;                   // the row (or key) of the tile at each position
  std::vector<uint64_t> bitmaps;  // permuted, where modulus is not 1

  explicit StridedOrder(int modulus = 1) : modulus(modulus) {
    for (int p = 0; p < kTile; ++p) row_at[p] = p % (kTile / modulus) * modulus + p / (kTile / modulus);
  }
  uint64_t keys(uint64_t word) const {
    if (modulus == 1) return word;
    uint64_t permuted = 0;
    for (; word; word &= word - 1) {
      const int j = __builtin_ctzll(word);
      permuted |= uint64_t(1) << (j % modulus * (kTile / modulus) + j / modulus);
    }
    return permuted;
  }
};

// The live keys of kRows rows: the span of blocks that is live for any of them, and the cost in vector operations of
// both methods to compute them. A listed key takes two passes over D / 16 registers, each with a load, and a horizontal
// sum; a block of 16 keys takes 2 D multiply-adds per row.
struct LiveKeys {
  int first = 0, blocks = 0, keys = 0;

  explicit LiveKeys(const uint64_t (&word)[kRows]) {
    uint64_t any = 0;
    for (int n = 0; n < kRows; ++n) any |= word[n], keys += __builtin_popcountll(word[n]);
    if (!any) return;
    first = __builtin_ctzll(any) / SIZE;
    blocks = (63 - __builtin_clzll(any)) / SIZE - first + 1;
  }
  int listed(int head_dim) const { return keys * (head_dim / 4 + 10); }
  int whole(int head_dim) const { return kRows * blocks * 2 * head_dim; }
};

// The order of least cost for the tiles of `lists` query tiles, from a sample of the partial ones. With a bias or an
// expression it is unchanged: these go by positions.
inline StridedOrder best_order(const AttentionArgs& a, int64_t lists) {
  constexpr int sampled = 16;
  const int64_t tiles = a.row_ptr && !a.bias && !kExpressed ? a.row_ptr[lists] : 0;
  std::vector<int64_t> codes;
  for (int64_t i = 0; i < sampled; ++i)
    if (const int64_t at = tiles * i / sampled; at < tiles && a.tile_code[at] >= 0) codes.push_back(a.tile_code[at]);
  int64_t least = 0;
  StridedOrder best;
  for (int modulus = 1; modulus <= 8; modulus *= 2) {
    const StridedOrder tried(modulus);
    int64_t cost = 0;
    for (const int64_t code : codes)
      for (int r = 0; r < kTile; r += kRows) {
        uint64_t word[kRows];
        for (int n = 0; n < kRows; ++n) word[n] = tried.keys(a.bitmaps[code * kTile + tried.row_at[r + n]]);
        const LiveKeys live(word);
        cost += std::min(live.listed(a.head_dim), live.whole(a.head_dim));
      }
    if (modulus == 1 || cost < least) least = cost, best = tried;
  }
  if (best.modulus == 1) return best;
  int64_t count = 0;
  for (int64_t i = 0; i < tiles; ++i) count = std::max<int64_t>(count, a.tile_code[i] + 1);
  best.bitmaps.resize(size_t(count) * kTile);
  for (int64_t i = 0; i < count * kTile; ++i)
    best.bitmaps[i] = best.keys(a.bitmaps[i / kTile * kTile + best.row_at[i % kTile]]);
  return best;
}
}  // namespace cpu_tiles
