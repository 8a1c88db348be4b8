// How a launch of v4_cluster is sized: blocks per cluster, clusters per item, blocks per SM, and when the next launch
// may start. Measured in NOTES.md, "A cluster", NOTES_join.md, NOTES_overlap.md and NOTES_fp8.md.
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
constexpr int kLongUnits = 64;            // of a warp, from which on two blocks per SM are faster
constexpr int kManyRounds = 12;           // of one block per SM, from which on three blocks per SM are faster than four

// When the next launch's blocks may start: flags of `how`, as those of loads_of().
constexpr int kNextAtOnce = 8, kNextAfterKeys = 32, kNextAfterSending = 64;

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

// How much of all rounds of so many blocks per SM the blocks fill.
inline double filled(int64_t blocks, int per_sm) {
  const int64_t places = per_sm * int64_t(multiprocessors());
  return double(blocks) / double((blocks + places - 1) / places * places);
}

// Bytes of shared memory, which set how many blocks an SM holds, of one block per item. Four, or three where the blocks
// then fill whole rounds of the SMs better: some SMs would read for four blocks while others read for two. Long items
// of 16-bit elements are read faster by fewer blocks at a time: three where there are many rounds, two where these fill
// them as well.
// each: units of a warp.
template <typename S> int shared_bytes(int64_t blocks, int64_t each) {
  const int64_t sms = multiprocessors();
  if (S::blocks_per_sm != 4 || blocks <= 2 * sms) return S::bytes;
  const bool of_16_bits = S::element > 1;
  if (of_16_bits && each >= kManyUnits && blocks >= kManyRounds * sms) return kBytesOfThree;
  if (filled(blocks, 3) > filled(blocks, 4)) return kBytesOfThree;
  return of_16_bits && each >= kLongUnits && filled(blocks, 2) >= filled(blocks, 4) ? kBytesOfTwo : S::bytes;
}

// Whether the slots take the next launch's blocks beside these: otherwise those take slots which this launch still
// needs. Clusters of four or more need slots in one GPC.
template <typename S> bool room_for_next(int64_t blocks, int log_blocks) {
  return blocks * 8 <= (log_blocks < 2 ? 4 : 3) * S::blocks_per_sm * int64_t(multiprocessors());
}

// Bytes of shared memory, and when the next launch's blocks may start.
struct Overlap {
  int bytes, next;
};

inline int64_t units_of_warp(int64_t units, Parts parts) { return (units >> (parts.blocks + parts.clusters)) / kWarps; }

// The next launch's blocks wait in slots, so that their start costs nothing. But they take the slots that are free, and
// SMs that get more of them than others end later. So a launch of few keys lets them start late, and into SMs that hold
// no more blocks than one launch gives them; one of many keys, whose SMs end at different times, at once or not at all.
template <typename S> Overlap overlap_of(int64_t items, Parts parts, int64_t units) {
  const int64_t sms = multiprocessors(), blocks = items << (parts.blocks + parts.clusters);
  const int64_t each = units_of_warp(units, parts);
  const bool room = room_for_next<S>(blocks, parts.blocks);
  if (room && blocks <= sms) return {S::bytes, kNextAfterKeys};
  if (parts.blocks > 1) {
    if (room) return {S::bytes, each <= kEnoughUnits ? kNextAfterKeys : kNextAtOnce};
    if (parts.clusters || blocks > 3 * sms) return {S::bytes, 0};
    return {2 * blocks <= 5 * sms && S::bytes < kBytesOfThree ? kBytesOfThree : S::bytes, kNextAfterSending};
  }
  if (room && each > kEnoughUnits) return {S::bytes, kNextAtOnce};
  if (room) return {blocks <= 2 * sms && S::bytes < kBytesOfTwo ? kBytesOfTwo : S::bytes, kNextAfterKeys};
  const int bytes = parts.blocks ? S::bytes : shared_bytes<S>(blocks, each);
  const int per_sm = bytes == kBytesOfTwo ? 2 : bytes == kBytesOfThree ? 3 : S::blocks_per_sm;
  return {bytes, each <= kManyUnits && filled(blocks, per_sm) >= 0.875 ? kNextAfterKeys : 0};
}

// The same with a new token: the blocks start while some SMs are taken by the product before, and the others would read
// for three or four blocks where two each are enough. Clusters of 16 need as many slots in one GPC; as long as they
// fill three quarters of two blocks per SM, smaller GPCs do not matter.
template <typename S> Overlap overlap_beside_others(int64_t items, Parts parts, int64_t units) {
  const int64_t sms = multiprocessors(), blocks = items << (parts.blocks + parts.clusters);
  const int64_t most = parts.blocks < 4 ? 2 * sms : sms + sms / 2;
  int bytes = parts.blocks ? S::bytes : shared_bytes<S>(blocks, units_of_warp(units, parts));
  if (blocks > sms && blocks <= most && S::bytes < kBytesOfTwo) bytes = kBytesOfTwo;
  return {bytes, room_for_next<S>(blocks, parts.blocks) ? kNextAtOnce : 0};
}
}  // namespace decode
