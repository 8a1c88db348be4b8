// How v3 shares its work: the live tiles of 64 keys in one sequence as in work_split.cuh, in equal shares, no more
// shares than help, none of them empty.
//
// A tile is live if a query token sees a key of it, so a window leaves out the tiles before it. Share i of n has
// total / n tiles, and one more where i < total % n: 32-bit arithmetic, the same in every block. It begins inside at
// most one item and ends inside at most one.
//
// How many shares: an item of N tiles in p pieces takes about N / p tile times and p join times, least at
// p = sqrt(N tile / join). A tile is 256 D bytes that one SM reads at some 110 B/ns; a piece is 4 rows D bytes that the
// joining block reads with 16 KB in flight at 0.6 us, some 27 B/ns: tile / join = 16 / rows. So a share has at least
// N / p = sqrt(N rows) / 4 tiles, N being the mean of the items. Both rates are estimates for Hopper, not measurements.
#pragma once
#include <math.h>

#include "general.h"
#include "work_split.cuh"

namespace decode {
constexpr int kRows = 16;  // query rows of an item: heads of the group times tokens

// Rows of a KV head, of an item, and items of a sequence.
__host__ __device__ inline int all_rows(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g) {
  return group_of(a) * g.tokens;
}
__host__ __device__ inline int item_rows(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g) {
  return all_rows(a, g) < kRows ? all_rows(a, g) : kRows;
}
__host__ __device__ inline int row_blocks(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g) {
  return (all_rows(a, g) + kRows - 1) / kRows;
}

// The keys of a sequence that some token sees, and the tiles they lie in; no tiles at length 0.
struct Span {
  int length, low, first, end;
  __device__ __forceinline__ int tiles() const { return end - first; }
};
__device__ __forceinline__ Span span_of(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g, int b) {
  const int length = length_of(a, b), begin = g.window ? length - g.tokens + 1 - g.window : 0;
  const int low = begin > 0 ? begin : 0;
  return {length, low, low / kTile, length ? (length + kTile - 1) / kTile : low / kTile};
}

// Whether some tokens of the sequence see a key of [first, first + keys) that others do not.
__device__ __forceinline__ bool seen_by_some(const AttentionDecodeGeneral& g, int length, int first, int keys) {
  return g.tokens > 1 && (first + keys > length - g.tokens + 1 || (g.window && first < length - g.window));
}

struct Shares {
  unsigned total, count, each, longer;  // tiles; shares; tiles of a share; how many have one more
  __device__ __forceinline__ unsigned begin(unsigned i) const { return i * each + (i < longer ? i : longer); }
  // The share that has tile x.
  __device__ __forceinline__ unsigned of(unsigned x) const {
    const unsigned split = longer * (each + 1);
    return x < split ? x / (each + 1) : longer + (x - split) / each;
  }
};

// Called by whole warps.
__device__ __forceinline__ Shares shares_of(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g, int items) {
  unsigned tiles = 0, live = 0;
  for (int b = threadIdx.x % 32; b < a.batch; b += 32) {
    const int own = span_of(a, g, b).tiles();
    tiles += own, live += own > 0;
  }
  const unsigned total = warp_sum(tiles) * items, cells = warp_sum(live) * items;
  if (total == 0) return {0, 0, 0, 0};
  const unsigned least = unsigned(ceilf(0.25f * sqrtf(float(total) / cells * item_rows(a, g))));
  unsigned count = (total + least - 1) / least;
  count = count < gridDim.x ? count : gridDim.x;
  return {total, count, total / count, total % count};
}

// A tile of the sequence of all tiles; the same in all lanes of a warp.
struct Place {
  int b, item, tile;
  Span span;

  // Goes to the next tile. Beyond the last it stays at b == batch.
  __device__ __forceinline__ void advance(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g, int items) {
    if (++tile < span.end) return;
    tile = span.first;
    if (++item < items) return;
    item = 0;
    do {
      if (++b >= a.batch) return;
      span = span_of(a, g, b);
    } while (span.tiles() == 0);
    tile = span.first;
  }
};

// The tile of number x < total. Called by a whole warp.
__device__ __forceinline__ Place place_of(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g, int items,
                                          unsigned x) {
  const int lane = threadIdx.x % 32;
  for (int first = 0;; first += 32) {
    const int b = first + lane;
    const unsigned own = b < a.batch ? span_of(a, g, b).tiles() * items : 0;
    unsigned upto = own;  // tiles of the sequences first ... b
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const unsigned before = __shfl_sync(kAll, upto, lane >= d ? lane - d : lane);
      if (lane >= d) upto += before;
    }
    const unsigned here = __shfl_sync(kAll, upto, 31);
    if (x >= here) {
      x -= here;
      continue;
    }
    const int at = warp_max(x >= upto - own && x < upto ? lane : -1);
    const unsigned rest = x - __shfl_sync(kAll, upto - own, at);
    Place p;
    p.b = first + at;
    p.span = span_of(a, g, p.b);
    p.item = int(rest / p.span.tiles());
    p.tile = p.span.first + int(rest % p.span.tiles());
    return p;
  }
}
}  // namespace decode
