// How a launch of v4_cluster is sized: blocks per cluster, clusters per item, blocks per SM, and when the next launch
// may start. Measured in NOTES.md, "A cluster".
#pragma once
#include "../common/device.cuh"
#include "work_split.cuh"

namespace decode {
constexpr int kMostBlocks = 16;           // of a cluster
constexpr int kBytesOfThree = 58 * 1024;  // an SM's 228 KB hold three such blocks, but not four
constexpr int kFewestUnits = 8;           // of a warp, where an item has several clusters

// Blocks per cluster, as a power of 2: at most two blocks per SM and at least one unit per warp, but no fewer than one
// block per 256 units, so that the longest of unequal sequences is not left to one block. `sixteen` says whether the
// device runs clusters of 16 for all items at once.
template <typename Sixteen> int blocks_per_cluster(int64_t items, int64_t units, Sixteen sixteen) {
  int blocks = 0;
  while (blocks < 4 && items << (blocks + 1) <= 2 * multiprocessors() && int64_t(kWarps) << (blocks + 1) <= units)
    ++blocks;
  while (blocks < 3 && int64_t(256) << blocks < units) ++blocks;
  return blocks == 4 && !sixteen() ? 3 : blocks;
}

// Clusters per item, as a power of 2: at most one block per SM, and kFewestUnits or more for every warp, which take
// longer than the join.
inline int clusters_per_item(int64_t items, int64_t units, int blocks) {
  int clusters = 0;
  while (blocks > 0 && items << (blocks + clusters + 1) <= multiprocessors() &&
         int64_t(kFewestUnits * kWarps) << (blocks + clusters + 1) <= units)
    ++clusters;
  return clusters;
}

// Bytes of shared memory, which set how many blocks an SM holds: three instead of four where the blocks, one per item,
// then fill whole rounds of the SMs better. Otherwise the next launch's blocks take the free slots, and some SMs read
// for four blocks while others read for two.
template <typename S> int shared_bytes(int64_t blocks) {
  if (S::blocks_per_sm != 4 || blocks <= 2 * multiprocessors()) return S::bytes;
  const auto filled = [&](int per_sm) {
    const int64_t places = per_sm * int64_t(multiprocessors());
    return double(blocks) / double((blocks + places - 1) / places * places);
  };
  return filled(3) > filled(4) ? kBytesOfThree : S::bytes;
}

// Whether the next launch's blocks may start while these run. Blocks that take slots which this launch still needs cost
// more than an earlier start gains. Clusters of four or more need slots in one GPC, which they find only where half of
// all slots are free.
template <typename S> bool next_may_start(int64_t items, int blocks) {
  return (items << blocks) * (blocks < 2 ? 2 : 4) <= S::blocks_per_sm * int64_t(multiprocessors());
}
}  // namespace decode
