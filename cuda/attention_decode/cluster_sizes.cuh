// How a launch of v4_cluster is sized: blocks per cluster, clusters per item, blocks per SM, and when the next launch
// may start. Measured in NOTES.md, "A cluster", NOTES_join.md and NOTES_fp8.md.
#pragma once
#include <atomic>

#include "../common/device.cuh"
#include "work_split.cuh"

namespace decode {
constexpr int kMostBlocks = 16;           // of a cluster
constexpr int kBytesOfThree = 58 * 1024;  // an SM's 228 KB hold three such blocks, but not four
constexpr int kBytesOfTwo = 76 * 1024;    // two such blocks, but not three
constexpr int kFewestUnits = 8;           // of a warp: fewer are few
constexpr int kEnoughUnits = 4;           // of a warp, where an item has more parts than a cluster has blocks
constexpr int kManyUnits = 16;            // of a warp, from which on clusters of two are faster; of e4m3 half as many

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

// Blocks of a cluster and clusters of an item, as powers of 2.
struct Parts {
  int blocks, clusters;
};

// The parts of an item: of each warp at least one unit. At most two blocks per SM; one where that suffices, unless
// warps then have few units to read; three where they have few, and of e4m3, whose units take a warp nearly as long as
// twice as many bytes of 16 bits do. In a batch no fewer than one block per 256 units, so that the longest of unequal
// sequences is not left to one block.
//
// They are one cluster of up to 16 blocks. Where they fill the SMs and warps have many units, clusters of two blocks
// are faster although the join of several costs some 2 us: they find room on any SM, where larger ones leave some idle.
// An item of few has up to 64 parts, if warps have enough units. `sixteen` says whether the device runs clusters of 16
// for all items at once. Bytes: of e4m3. Eights: query columns over 8.
template <bool Bytes, int Eights, typename Sixteen>
Parts parts_of(int batch, int64_t items, int64_t units, Sixteen sixteen) {
  const int64_t sms = multiprocessors();
  const auto help = [&](int parts) {
    const int64_t blocks = items << parts, warps = int64_t(kWarps) << parts;
    const bool few = units < kFewestUnits * warps, more = Bytes && Eights == 1;
    if (blocks > sms && !few && !more && one_block_suffices()) return false;
    return blocks <= ((few || Bytes) && Eights == 1 ? 3 : 2) * sms && units >= warps * (parts > 4 ? kEnoughUnits : 1);
  };
  int parts = 0;
  while (parts < 6 && help(parts + 1)) ++parts;
  while (parts < 3 && batch > 1 && int64_t(256) << parts < units) ++parts;
  const int64_t blocks = items << parts, places = (blocks + sms - 1) / sms * sms;
  if (parts == 6) return {3, 3};
  if (parts == 5) return Eights == 1 ? Parts{1, 4} : Parts{3, 2};
  if (parts > 1 && 8 * blocks >= 7 * places && units >> parts >= kWarps * (Bytes ? kManyUnits / 2 : kManyUnits))
    return {1, parts - 1};
  return {parts == 4 && !sixteen() ? 3 : parts, 0};
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
// more than an earlier start gains. Clusters of four or more need slots in one GPC.
template <typename S> bool next_may_start(int64_t items, int blocks) {
  return (items << blocks) * 8 <= (blocks < 2 ? 4 : 3) * S::blocks_per_sm * int64_t(multiprocessors());
}
}  // namespace decode
