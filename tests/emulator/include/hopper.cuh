// Stands in for cuda/common/hopper.cuh: barriers of arrivals and bytes, TMA and wgmma, from the layouts of the PTX ISA.
//
// A TMA copy that is late arrives when a thread waits for its barrier. Products run where they are issued, once all
// four warps of the warpgroup have issued the same one; waiting for too few of them does not show.
#pragma once
#include <map>
#include <type_traits>

#include "async_copy.cuh"
#include "mma.cuh"

#pragma GCC push_options
#pragma GCC optimize("O1")

#define __CUDA_ARCH_FEAT_SM90_ALL 1

// A tensor of 16-bit elements (batch, head, row, column), or with its rows in order of residues (batch, head, residue,
// index, column), and the box of a tile.
struct CUtensorMap {
  const uint16_t* data;
  int64_t sizes[5], strides[5], box[5];
};

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

// Calls visit(eight neighbouring columns of the tile in shared memory, offset of the first in the tensor, the first
// that lies in the tensor, the first after it that does not) for the box of the tile at `base` that begins at (batch,
// head, residue, index, column). The swizzle moves eight columns as one.
template <typename Visit> void each_chunk(uint32_t base, const CUtensorMap& m, const int64_t (&from)[5], Visit visit) {
  for (int n = 0; n < m.box[2] * m.box[3]; ++n) {
    const int64_t at[4] = {from[0], from[1], from[2] + n / m.box[3], from[3] + n % m.box[3]};
    bool inside = true;
    int64_t offset = 0;
    for (int i = 0; i < 4; ++i) {
      inside = inside && at[i] >= 0 && at[i] < m.sizes[i];
      offset += at[i] * m.strides[i];
    }
    for (int64_t c = 0; c < 64; c += 8) {
      const int64_t column = from[4] + c, left = m.sizes[4] - column;
      const int64_t begin = column < 0 ? (column < -8 ? 8 : -column) : 0, end = left < 8 ? left : 8;
      const bool some = inside && begin < end;
      visit(swizzled(base + uint32_t(n * 128 + c * 2)), offset + column, some ? begin : 0, some ? end : 0);
    }
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
    each_chunk(base, m, from, [&](unsigned char* chunk, int64_t offset, int64_t begin, int64_t end) {
      std::memset(chunk, 0, 16);
      std::memcpy(chunk + 2 * begin, m.data + offset + begin, size_t(2 * (end - begin)));
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
    each_chunk(base, m, first, [&](const unsigned char* chunk, int64_t offset, int64_t begin, int64_t end) {
      std::memcpy(const_cast<uint16_t*>(m.data) + offset + begin, chunk + 2 * begin, size_t(2 * (end - begin)));
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

using Four = float __attribute__((vector_size(16)));  // accumulators 4j to 4j + 3: two columns of two rows

// The operands of a warpgroup's product as fp32: A, for which products take turns, since a thread that is ahead writes
// its part of the next one; B by accumulators, columns[t][k][j] those 4j to 4j + 3 of the lanes with lane % 4 = t.
struct Product {
  int arrived;
  unsigned generation;
  uint64_t a, b;
  float rows[2][64][16];
  Four columns[4][16][16];
};
inline Product products[emulator::kMaxThreads / 128];

// The first of the two rows, eight apart, that a thread accumulates.
inline int first_row() { return 16 * (emulator::current / 32 % 4) + emulator::lane() / 4; }

// A product belongs to a warpgroup: one that a single warp issues hangs on a GPU. The last thread to arrive decodes B,
// rows (n, k): rows of the tile are n (K-major), or k (MN-major), where columns from 64 on come from a second tile, as
// far behind the first as the descriptor's leading offset says.
template <typename T, bool RowsAreK> void decode_columns(Product& p, int columns) {
  const uint32_t base = uint32_t(p.b & 0x3fff) << 4, lead = uint32_t(p.b >> 16 & 0x3fff) << 4;
  for (int n = 0; n < columns; ++n)
    for (int k = 0; k < 16; ++k) {
      Four& four = p.columns[n % 8 / 2][k][n / 8];
      const float value = at<T>(RowsAreK ? base + n / 64 * lead + k * 128 + n % 64 * 2 : base + n * 128 + k * 2);
      four[n % 2] = four[n % 2 + 2] = value;
    }
}

// own, last: each thread writes its part of A into the rows that they are given, or the last one all of it.
template <typename T, bool RowsAreK, int N, typename Own, typename Last>
void product(float (&d)[N], uint64_t a, uint64_t b, bool accumulate, Own own, Last last) {
  Product& p = products[emulator::current / 128];
  auto& rows = p.rows[p.generation & 1];
  if (p.arrived == 0)
    p.a = a, p.b = b;
  else if (p.a != a || p.b != b)
    emulator::fail("the warps of a warpgroup issue different products");
  own(rows);
  if (p.arrived == 127) {
    last(rows);
    decode_columns<T, RowsAreK>(p, 2 * N);
  }
  emulator::barrier(p.arrived, 128, p.generation);
  static_assert(N % 4 == 0 && N <= 64);
  Four sums[N / 4] = {};
  if (accumulate) std::memcpy(sums, d, sizeof d);
  const float *upper = rows[first_row()], *lower = rows[first_row() + 8];
  for (int k = 0; k < 16; ++k) {
    const Four both = {upper[k], upper[k], lower[k], lower[k]};
    for (int j = 0; j < N / 4; ++j) sums[j] += both * p.columns[emulator::lane() % 4][k][j];
  }
  std::memcpy(d, sums, sizeof d);
}

// a (64 x 16) from registers.
template <typename T, bool RowsAreK, int N>
void from_registers(float (&d)[N], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
  const auto own = [&](auto& rows) {
    const int t = emulator::lane() % 4;
    for (int e = 0; e < 8; ++e)
      rows[first_row() + 8 * (e / 2 % 2)][2 * t + e % 2 + 8 * (e / 4)] = tensor_core::element<T>(a[e / 2], e % 2);
  };
  product<T, RowsAreK>(d, 0, b, accumulate, own, [](auto&) {});
}

// a from shared memory, both operands K-major.
template <typename T, int N> void from_shared(float (&d)[N], uint64_t a, uint64_t b, bool accumulate) {
  const auto last = [&](auto& rows) {
    const uint32_t base = uint32_t(a & 0x3fff) << 4;
    for (int row = 0; row < 64; ++row)
      for (int k = 0; k < 16; ++k) rows[row][k] = at<T>(base + row * 128 + k * 2);
  };
  product<T, false>(d, a, b, accumulate, [](auto&) {}, last);
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

#pragma GCC pop_options
