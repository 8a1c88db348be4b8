// Stands in for cuda/common/hopper.cuh: barriers of arrivals and bytes, TMA and wgmma, from the layouts of the PTX ISA.
//
// With EMULATED_COPIES=late what TMA was asked for arrives only when somebody waits for it, else at once. Products run where they are
// started; waiting for too few of them does not show.
#pragma once
#include <map>
#include <type_traits>

#include "async_copy.cuh"
#include "mma.cuh"

#define __CUDA_ARCH_FEAT_SM90_ALL 1

// A 4-D tensor (batch, head, row, column) of 16-bit elements.
struct CUtensorMap {
  const uint16_t* data;
  int64_t sizes[4], strides[4];
};

inline int __any_sync(unsigned, int mine) {
  return emulator::together(mine, [](auto of) {
    int any = 0;
    for (int i = 0; i < 32; ++i) any |= of(i);
    return any;
  });
}

namespace hopper {

constexpr int kTileBytes = 64 * 64 * 2;
constexpr uint64_t kStepColumns = 32 >> 4, kStepRows = 16 * 128 >> 4;

using tensor_core::shared_address;

// The 128-byte swizzle acts on addresses: bits 4 to 6 are XORed with bits 7 to 9.
inline unsigned char* swizzled(uint32_t address) { return tensor_core::shared_pointer(address ^ (address >> 3 & 0x70)); }

struct Barrier {
  int arrivals, pending;
  long bytes = 0;  // announced and not yet delivered
  unsigned generation = 0;
  std::vector<std::function<void()>> late;

  void check() {
    if (pending == 0 && bytes == 0) {
      pending = arrivals;
      ++generation;
    }
  }
};
inline std::map<uint64_t*, Barrier> barriers;

inline void barrier_init(uint64_t* barrier, uint32_t arrivals) { barriers[barrier] = Barrier{int(arrivals), int(arrivals)}; }
inline void barrier_init_fence() {}
inline void barrier_expect(uint64_t* barrier, uint32_t bytes) {
  Barrier& b = barriers.at(barrier);
  if (b.pending == 0) emulator::fail("more arrivals at a barrier than it was made for");
  --b.pending;
  b.bytes += bytes;
  b.check();
}
inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
  Barrier& b = barriers.at(barrier);
  auto late = std::move(b.late);
  b.late.clear();
  for (auto& copy : late) copy();
  while ((b.generation & 1) == parity) emulator::wait_for(&b.generation);
}

inline void load_tile(void* to, const CUtensorMap* map, uint64_t* barrier, int column, int row, int head, int batch) {
  const uint32_t base = shared_address(to);
  if (base % 1024) emulator::fail("TMA with the 128-byte swizzle into a tile that is not 1024-byte aligned");
  const CUtensorMap m = *map;
  auto copy = [=] {
    for (int r = 0; r < 64; ++r)
      for (int c = 0; c < 64; ++c) {
        const int64_t at[4] = {batch, head, row + r, column + c};
        bool inside = true;
        int64_t offset = 0;
        for (int i = 0; i < 4; ++i) {
          inside = inside && at[i] >= 0 && at[i] < m.sizes[i];
          offset += at[i] * m.strides[i];
        }
        const uint16_t value = inside ? m.data[offset] : 0;
        std::memcpy(swizzled(base + r * 128 + c * 2), &value, 2);
      }
    Barrier& b = barriers.at(barrier);
    b.bytes -= kTileBytes;
    b.check();
  };
  if (async_copy::late()) barriers.at(barrier).late.push_back(copy);
  else copy();
}
inline void prefetch_map(const CUtensorMap*) {}

inline uint64_t tile_descriptor(const void* tile) { return (shared_address(tile) & 0x3ffff) >> 4; }
inline void wgmma_fence() {}
inline void wgmma_commit() {}
template <int Pending> void wgmma_wait() {}
template <int N> void fence_registers(float (&)[N]) {}

template <typename T> float at(uint32_t address) {
  T value;
  std::memcpy(&value, swizzled(address), 2);
  return tensor_core::to_fp32(value);
}

// Rows (n, k) of B: rows of the tile are n (K-major), or k (MN-major).
template <typename T, bool RowsAreK> void multiply(float (&d)[32], const float (&a)[2][16], uint64_t b, bool accumulate) {
  const uint32_t base = uint32_t(b & 0x3fff) << 4;
  const int t = emulator::lane() % 4;
  for (int i = 0; i < 32; ++i) {
    const int n = 8 * (i / 4) + 2 * t + (i & 1);
    float sum = accumulate ? d[i] : 0.0f;
    for (int k = 0; k < 16; ++k) sum += a[i >> 1 & 1][k] * at<T>(base + (RowsAreK ? k * 128 + n * 2 : n * 128 + k * 2));
    d[i] = sum;
  }
}

template <typename T, int RowsAreK> void wgmma_64x64x16(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
  struct Operand {
    uint32_t a[4];
  } own{{a[0], a[1], a[2], a[3]}};
  emulator::together(own, [&](auto of) {
    float rows[2][16];
    for (int h = 0; h < 2; ++h)
      for (int k = 0; k < 16; ++k) rows[h][k] = tensor_core::element<T>(of(emulator::lane() / 4 * 4 + k % 8 / 2).a[h + 2 * (k / 8)], k % 2);
    multiply<T, RowsAreK>(d, rows, b, accumulate);
    return 0;
  });
}

template <typename T> void wgmma_64x64x16(float (&d)[32], uint64_t a, uint64_t b, bool accumulate) {
  emulator::warp_barrier();
  const uint32_t base = uint32_t(a & 0x3fff) << 4;
  float rows[2][16];
  for (int h = 0; h < 2; ++h)
    for (int k = 0; k < 16; ++k) rows[h][k] = at<T>(base + (16 * (emulator::current / 32 % 4) + emulator::lane() / 4 + 8 * h) * 128 + k * 2);
  multiply<T, false>(d, rows, b, accumulate);
  emulator::warp_barrier();
}

// As the real one judges: what TMA does not take.
inline const char* make_map(CUtensorMap* map, bool, const void* data, const int64_t sizes[4], const int64_t strides[4]) {
  if (reinterpret_cast<uintptr_t>(data) % 16) return "unsupported: an address that is not a multiple of 16 bytes (TMA)";
  if (strides[3] != 1) return "unsupported: a last dimension that is not contiguous (TMA)";
  for (int i = 0; i < 3; ++i)
    if (sizes[i] != 1 && (strides[i] <= 0 || strides[i] % 8)) return "unsupported: strides that are not positive multiples of 16 bytes (TMA)";
  map->data = static_cast<const uint16_t*>(data);
  std::memcpy(map->sizes, sizes, sizeof map->sizes);
  std::memcpy(map->strides, strides, sizeof map->strides);
  return nullptr;
}

}  // namespace hopper
