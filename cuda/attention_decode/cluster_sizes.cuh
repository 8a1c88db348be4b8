// How a launch of v4_cluster is sized: blocks per cluster, clusters per item, blocks per SM, and when the next launch
// may start. Measured in NOTES.md, "A cluster", and NOTES_fp8.md.
#pragma once
#include <atomic>

#include "../common/device.cuh"
#include "work_split.cuh"

namespace decode {
constexpr int kMostBlocks = 16;           // of a cluster
constexpr int kBytesOfThree = 58 * 1024;  // an SM's 228 KB hold three such blocks, but not four
constexpr int kBytesOfTwo = 76 * 1024;    // two such blocks, but not three
constexpr int kFewestUnits = 8;           // of a warp, where an item has several clusters or an SM one block
constexpr int kManyUnits = 16;            // of a warp, where blocks of e4m3 are more than an SM's slots

// Whether one block per SM keeps the memory busy: its 32 KB of loads under way cover 1 us of the memory's peak rate. So
// on an H100 (3.35 TB/s), not on an H200 (4.9 TB/s). Queried once per device.
inline bool one_block_suffices() {
  constexpr int most = 64;
  static std::atomic<int> known[most];  // 0: not yet; 1: no; 2: yes
  const int device = current_device();
  if (device < most && known[device] > 0) return known[device] == 2;
  int kilohertz = 0, bits = 0;
  cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, device);
  cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device);
  const double bytes_per_us = 2.0 * kilohertz / 1e3 * bits / 8;
  const bool yes = bytes_per_us > 0 && multiprocessors() * 32768.0 >= bytes_per_us;
  if (device < most) known[device] = 1 + yes;
  return yes;
}

// Blocks per cluster, as a power of 2: at most two blocks per SM, and one where that suffices unless warps then have
// few units to read; at least one unit per warp. In a batch no fewer than one block per 256 units, so that the longest
// of unequal sequences is not left to one block. `sixteen` says whether the device runs clusters of 16 for all items at
// once. More: whether two blocks are better than one that keeps the memory busy.
template <bool More, typename Sixteen>
int blocks_per_cluster(int batch, int64_t items, int64_t units, Sixteen sixteen) {
  int blocks = 0;
  const auto more_help = [&] {
    const int64_t doubled = items << (blocks + 1), warps = int64_t(kWarps) << (blocks + 1);
    const bool second = !More && doubled > multiprocessors() && units >= kFewestUnits * warps && one_block_suffices();
    return doubled <= 2 * multiprocessors() && warps <= units && !second;
  };
  while (blocks < 4 && more_help()) ++blocks;
  while (blocks < 3 && batch > 1 && int64_t(256) << blocks < units) ++blocks;
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

// The same for units of e4m3, which take a warp nearly as long as twice the bytes of 16 bits do: as many warps as have
// work. Up to two blocks per SM; where warps keep kManyUnits, more than four, in several rounds, so that SMs with more
// blocks than others do not decide. In between neither helps.
inline int clusters_per_item_e4m3(int64_t items, int64_t units, int blocks) {
  const int64_t sms = multiprocessors();
  const auto clusters_for = [&](int64_t most_blocks, int fewest) {
    int clusters = 0;
    while (blocks > 0 && items << (blocks + clusters + 1) <= most_blocks &&
           int64_t(fewest * kWarps) << (blocks + clusters + 1) <= units)
      ++clusters;
    return clusters;
  };
  const int several = clusters_for(8 * sms, kManyUnits);
  return items << (blocks + several) > 4 * sms ? several : clusters_for(2 * sms, kFewestUnits);
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

// The same for a launch with a new token, whose blocks start while some SMs are taken by the product before: the others
// would read for three or four blocks where two each are enough. Clusters of 16 need as many slots in one GPC; as long
// as they fill three quarters of two blocks per SM, smaller GPCs do not matter.
template <typename S> int shared_bytes_beside_others(int64_t blocks, int log_blocks, int otherwise) {
  const int64_t sms = multiprocessors(), most = log_blocks < 4 ? 2 * sms : sms + sms / 2;
  return blocks > sms && blocks <= most && S::bytes < kBytesOfTwo ? kBytesOfTwo : otherwise;
}

// Whether the next launch's blocks may start while these run. Blocks that take slots which this launch still needs cost
// more than an earlier start gains. Clusters of four or more need slots in one GPC, which they find only where half of
// all slots are free.
template <typename S> bool next_may_start(int64_t items, int blocks) {
  return (items << blocks) * (blocks < 2 ? 2 : 4) <= S::blocks_per_sm * int64_t(multiprocessors());
}
}  // namespace decode
