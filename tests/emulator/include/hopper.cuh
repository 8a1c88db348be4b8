// Stands in for cuda/common/hopper.cuh: barriers of arrivals and bytes, TMA and wgmma, from the layouts of the PTX ISA.
//
// A TMA copy that is late arrives when a thread waits for its barrier. Products run where they are issued, once all
// four warps of the warpgroup have issued the same one; waiting for too few of them does not show.
#pragma once
#include <map>
#include <type_traits>

#include "async_copy.cuh"
#include "mma.cuh"

#define __CUDA_ARCH_FEAT_SM90_ALL 1

// A tensor of 16-bit elements (batch, head, row, column), or with its rows in order of residues (batch, head, residue,
// index, column), and the box of a tile.
struct CUtensorMap {
  const uint16_t* data;
  int64_t sizes[5], strides[5], box[5];
};

inline unsigned __ballot_sync(unsigned, int mine) {
  return emulator::together(mine, [](auto of) {
    unsigned all = 0;
    for (int i = 0; i < 32; ++i) all |= unsigned(of(i) != 0) << i;
    return all;
  });
}
inline int __any_sync(unsigned lanes, int mine) { return __ballot_sync(lanes, mine) != 0; }

namespace hopper {

constexpr int kTileBytes = 64 * 64 * 2;
constexpr uint64_t kStepColumns = 32 >> 4, kStepRows = 16 * 128 >> 4, kStepRowsAlone = kStepRows - (kStepRows << 16);

using tensor_core::shared_address;

// The 128-byte swizzle acts on addresses: bits 4 to 6 are XORed with bits 7 to 9.
inline unsigned char* swizzled(uint32_t address) {
  return tensor_core::shared_pointer(address ^ (address >> 3 & 0x70));
}

struct Barrier {
  int arrivals, pending;
  long bytes = 0;  // announced and not yet delivered
  unsigned generation = 0;
  int waiting = 0;  // threads
  std::vector<std::function<void()>> late;

  void check() {
    if (pending == 0 && bytes == 0) {
      pending = arrivals;
      ++generation;
    }
  }
};
inline std::map<uint64_t*, Barrier> barriers;

inline void barrier_init(uint64_t* barrier, uint32_t arrivals) {
  barriers[barrier] = Barrier{int(arrivals), int(arrivals)};
}
inline void barrier_init_fence() {}
inline void barrier_expect(uint64_t* barrier, uint32_t bytes) {
  Barrier& b = barriers.at(barrier);
  if (b.pending == 0) emulator::fail("more arrivals at a barrier than it was made for");
  --b.pending;
  b.bytes += bytes;
  b.check();
}
inline uint32_t barrier_arrive(uint64_t* barrier, uint32_t count) {
  Barrier& b = barriers.at(barrier);
  const uint32_t before = b.pending;
  if (before < count) emulator::fail("more arrivals at a barrier than it was made for");
  b.pending -= count;
  b.check();
  return before;
}
inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
  Barrier& b = barriers.at(barrier);
  auto late = std::move(b.late);
  b.late.clear();
  for (auto& copy : late) copy();
  ++b.waiting;
  while ((b.generation & 1) == parity) emulator::wait_for(&b.generation);
  --b.waiting;
}

// Calls visit(element of the tile in shared memory, offset in the tensor or -1 outside it) for the box of the tile at
// `base` that begins at (batch, head, residue, index, column).
template <typename Visit>
void each_element(uint32_t base, const CUtensorMap& m, const int64_t (&from)[5], Visit visit) {
  for (int n = 0; n < m.box[2] * m.box[3]; ++n)
    for (int c = 0; c < 64; ++c) {
      const int64_t at[5] = {from[0], from[1], from[2] + n / m.box[3], from[3] + n % m.box[3], from[4] + c};
      bool inside = true;
      int64_t offset = 0;
      for (int i = 0; i < 5; ++i) {
        inside = inside && at[i] >= 0 && at[i] < m.sizes[i];
        offset += at[i] * m.strides[i];
      }
      visit(swizzled(base + n * 128 + c * 2), inside ? offset : -1);
    }
}
inline uint32_t tile_address(const void* tile, const CUtensorMap& m) {
  const uint32_t base = shared_address(tile);
  if (base % 1024) emulator::fail("TMA with the 128-byte swizzle and a tile that is not 1024-byte aligned");
  if (64 % (m.box[2] * m.box[3]) || m.box[4] != 64) emulator::fail("a box that is not made of rows of a tile");
  return base;
}

inline void load_box(void* to, const CUtensorMap* map, uint64_t* barrier, const int64_t (&from)[5]) {
  const CUtensorMap m = *map;
  const uint32_t base = tile_address(to, m);
  auto copy = [=] {
    each_element(base, m, from, [&](unsigned char* element, int64_t offset) {
      const uint16_t value = offset < 0 ? 0 : m.data[offset];
      std::memcpy(element, &value, 2);
    });
    Barrier& b = barriers.at(barrier);
    b.bytes -= m.box[2] * m.box[3] * m.box[4] * 2;
    b.check();
  };
  if (emulator::late_copies && !barriers.at(barrier).waiting)
    barriers.at(barrier).late.push_back(copy);
  else
    copy();
}
inline void load_tile(void* to, const CUtensorMap* map, uint64_t* barrier, int column, int row, int head, int batch) {
  load_box(to, map, barrier, {batch, head, 0, row, column});
}
inline void load_tile(void* to, const CUtensorMap* map, uint64_t* barrier, int column, int index, int residue, int head,
                      int batch) {
  load_box(to, map, barrier, {batch, head, residue, index, column});
}
// Late, the tile is read only when its thread waits until it has been.
inline void store_tile(const void* from, const CUtensorMap* map, int column, int index, int residue, int head,
                       int batch) {
  const CUtensorMap m = *map;
  const uint32_t base = tile_address(from, m);
  const int64_t first[5] = {batch, head, residue, index, column};
  auto copy = [=] {
    each_element(base, m, first, [&](unsigned char* element, int64_t offset) {
      if (offset >= 0) std::memcpy(const_cast<uint16_t*>(m.data) + offset, element, 2);
    });
  };
  if (emulator::late_copies)
    emulator::fibers[emulator::current].open.push_back(copy);
  else
    copy();
}
inline void commit_tma_stores() { async_copy::commit(); }
template <int Pending> void await_tma_reads() { async_copy::wait<Pending>(); }
inline void await_tma_stores() { async_copy::wait<0>(); }
inline void prefetch_map(const CUtensorMap*) {}

inline void stmatrix_x4(uint32_t address, const uint32_t (&r)[4]) { tensor_core::store_matrices(address, r); }

inline uint64_t tile_descriptor(const void* tile) { return (shared_address(tile) & 0x3ffff) >> 4 | uint64_t(1) << 16; }
inline uint64_t wide_descriptor(const void* tile, const void* next) {
  return tile_descriptor(tile) + ((uint64_t((shared_address(next) - shared_address(tile)) >> 4) - 1) << 16);
}
inline uint64_t moved_descriptor(uint64_t descriptor, uint32_t by) {
  return (descriptor >> 32 << 32) | (uint32_t(descriptor) + by);
}
inline void wgmma_fence() {}
inline void wgmma_commit() {}
template <int Pending> void wgmma_wait() {}
template <int Branch = 0> void wgmma_wait_in_branch() {}
template <int N> void fence_registers(float (&)[N]) {}

template <typename T> float at(uint32_t address) {
  T value;
  std::memcpy(&value, swizzled(address), 2);
  return tensor_core::to_fp32(value);
}

// B of a product: 16 elements of each of up to 128 columns, as fp32.
using Columns = float[128][16];

// A product belongs to a warpgroup: one that a single warp issues hangs on a GPU. The last thread to arrive decodes B,
// rows (n, k): rows of the tile are n (K-major), or k (MN-major), where columns from 64 on come from a second tile, as
// far behind the first as the descriptor's leading offset says.
template <typename T, bool RowsAreK> const Columns& arrive(uint64_t b, int columns) {
  static struct {
    int arrived;
    unsigned generation;
    uint64_t b;
    Columns columns;
  } groups[emulator::kMaxThreads / 128];
  auto& group = groups[emulator::current / 128];
  if (group.arrived == 0)
    group.b = b;
  else if (group.b != b)
    emulator::fail("the warps of a warpgroup issue different products");
  if (group.arrived == 127) {
    const uint32_t base = uint32_t(b & 0x3fff) << 4, lead = uint32_t(b >> 16 & 0x3fff) << 4;
    for (int n = 0; n < columns; ++n)
      for (int k = 0; k < 16; ++k)
        group.columns[n][k] = at<T>(RowsAreK ? base + n / 64 * lead + k * 128 + n % 64 * 2 : base + n * 128 + k * 2);
  }
  emulator::barrier(group.arrived, 128, group.generation);
  return group.columns;
}

template <int N> void multiply(float (&d)[N], const float (&a)[2][16], const Columns& b, bool accumulate) {
  const int t = emulator::lane() % 4;
  for (int i = 0; i < N; ++i) {
    const float* column = b[8 * (i / 4) + 2 * t + i % 2];
    float sum = accumulate ? d[i] : 0.0f;
    for (int k = 0; k < 16; ++k) sum += a[i / 2 % 2][k] * column[k];
    d[i] = sum;
  }
}

// a (64 x 16) from registers.
template <typename T, bool RowsAreK, int N>
void from_registers(float (&d)[N], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
  auto& rows = emulator::warp().a;
  const int g = emulator::lane() / 4, t = emulator::lane() % 4;
  for (int e = 0; e < 8; ++e)
    rows[g + 8 * (e / 2 % 2)][2 * t + e % 2 + 8 * (e / 4)] = tensor_core::element<T>(a[e / 2], e % 2);
  const Columns& columns = arrive<T, RowsAreK>(b, 2 * N);
  float own[2][16];
  std::memcpy(own[0], rows[g], sizeof own[0]);
  std::memcpy(own[1], rows[g + 8], sizeof own[1]);
  multiply(d, own, columns, accumulate);
  emulator::warp_barrier();
}

// a from shared memory, both operands K-major.
template <typename T, int N> void from_shared(float (&d)[N], uint64_t a, uint64_t b, bool accumulate) {
  const Columns& columns = arrive<T, false>(b, 2 * N);
  const uint32_t base = uint32_t(a & 0x3fff) << 4;
  float rows[2][16];
  for (int h = 0; h < 2; ++h)
    for (int k = 0; k < 16; ++k)
      rows[h][k] = at<T>(base + (16 * (emulator::current / 32 % 4) + emulator::lane() / 4 + 8 * h) * 128 + k * 2);
  multiply(d, rows, columns, accumulate);
  emulator::warp_barrier();
}

template <typename T, int RowsAreK>
void wgmma_64x64x16(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
  from_registers<T, RowsAreK>(d, a, b, accumulate);
}
template <typename T> void wgmma_64x64x16(float (&d)[32], uint64_t a, uint64_t b, bool accumulate) {
  from_shared<T>(d, a, b, accumulate);
}
template <typename T> void wgmma_64x72x16(float (&d)[36], const uint32_t (&a)[4], uint64_t b) {
  from_registers<T, true>(d, a, b, true);
}
template <typename T> void wgmma_64x128x16(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  from_registers<T, true>(d, a, b, true);
}
template <typename T> void wgmma_64x128x16(float (&d)[64], uint64_t a, uint64_t b, bool accumulate) {
  from_shared<T>(d, a, b, accumulate);
}

// As the real one judges: what TMA does not take.
inline const char* make_ordered_map(CUtensorMap* map, bool, const void* data, const int64_t (&sizes)[4],
                                    const int64_t (&strides)[4], int64_t modulus, int64_t rows = 64) {
  if (reinterpret_cast<uintptr_t>(data) % 16) return "unsupported: an address that is not a multiple of 16 bytes (TMA)";
  if (strides[3] != 1) return "unsupported: a last dimension that is not contiguous (TMA)";
  for (int i = 0; i < 3; ++i)
    if (sizes[i] != 1 && (strides[i] <= 0 || strides[i] % 8))
      return "unsupported: strides that are not positive multiples of 16 bytes (TMA)";
  const int64_t length = sizes[2] / modulus, side = modulus == 1 || length > rows ? rows : length;
  if (length * modulus != sizes[2] || rows % side || (modulus > 1 && length > 64 && length % 64))
    emulator::fail("an order that boxes do not fit");
  *map = {static_cast<const uint16_t*>(data),
          {sizes[0], sizes[1], modulus, length, sizes[3]},
          {strides[0], strides[1], strides[2], modulus * strides[2], 1},
          {1, 1, rows / side, side, 64}};
  return nullptr;
}
inline const char* make_map(CUtensorMap* map, bool bfloat16, const void* data, const int64_t (&sizes)[4],
                            const int64_t (&strides)[4]) {
  return make_ordered_map(map, bfloat16, data, sizes, strides, 1);
}

}  // namespace hopper
