// Hopper's own instructions (sm_90a), as thin wrappers: mbarriers, tensor-map copies (TMA) and warpgroup matrix
// products (wgmma).
//
// A tile here is 64 rows of 64 16-bit elements: 128 bytes a row, stored with the 128-byte swizzle (chunk c of row r
// lies at chunk c ^ (r % 8)), 8192 bytes in all, 1024-byte aligned. TMA writes it so, wgmma reads it so.
//
// Accumulators of m64n64k16, with warp w of the warpgroup, g = lane / 4, t = lane % 4:
//   d[4 j + 0], d[4 j + 1]   row 16 w + g,     columns 8 j + 2 t and the next
//   d[4 j + 2], d[4 j + 3]   row 16 w + g + 8, the same columns                (PTX ISA, "wgmma.mma_async ... Register
//   Fragments")
// and the A operand from registers is that of mma.m16n8k16 (see mma.cuh), row 16 w first.
#pragma once
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include <atomic>
#include <cstring>
#include <type_traits>

namespace hopper {

constexpr int kTileBytes = 64 * 64 * 2;

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_init(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}

// Makes initialised barriers visible to the copy engine; one thread, before the block's first barrier.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// One arrival that also announces how many bytes the copy engine will deliver in this phase.
__device__ __forceinline__ void barrier_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}

// Arrives ``count`` times and returns how many arrivals the phase was waiting for before: 1 for the last of single
// ones.
__device__ __forceinline__ uint32_t barrier_arrive(uint64_t* barrier, uint32_t count) {
  uint32_t pending;
  asm volatile(
      "{\n"
      ".reg .b64 state;\n"
      "mbarrier.arrive.shared::cta.b64 state, [%1], %2;\n"
      "mbarrier.pending_count.b64 %0, state;\n"
      "}\n"
      : "=r"(pending)
      : "r"(shared_address(barrier)), "r"(count)
      : "memory");
  return pending;
}

// Waits until the phase of this parity has completed.
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra out;\n"
      "bra again;\n"
      "out:\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// TMA load of the 64 x 64 box at (column, row, head, batch) of a 4-D tensor map; elements outside the tensor are 0.
__device__ __forceinline__ void load_tile(void* to, const CUtensorMap* map, uint64_t* barrier, int column, int row,
                                          int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}

// The same for a map in strided-permuted order: the tile at (column, index, residue, head, batch).
__device__ __forceinline__ void load_tile(void* to, const CUtensorMap* map, uint64_t* barrier, int column, int index,
                                          int residue, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, "
      "%7}], [%2];" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(shared_address(barrier)), "r"(column), "r"(index), "r"(residue),
      "r"(head), "r"(batch)
      : "memory");
}

// TMA store of a tile to the coordinates of the corresponding load; elements outside the tensor are not written.
// Threads' writes to the tile need fence_async_proxy first (warpgroup.cuh).
__device__ __forceinline__ void store_tile(const void* from, const CUtensorMap* map, int column, int index, int residue,
                                           int head, int batch) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(
                   reinterpret_cast<uint64_t>(map)),
               "r"(shared_address(from)), "r"(column), "r"(index), "r"(residue), "r"(head), "r"(batch)
               : "memory");
}
// Commits this thread's TMA stores as a group.
__device__ __forceinline__ void commit_tma_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until TMA has read all but the last Pending groups of this thread from shared memory.
template <int Pending> __device__ __forceinline__ void await_tma_reads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
// Waits until all of them are in global memory.
__device__ __forceinline__ void await_tma_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<uint64_t>(map)) : "memory");
}

// Descriptor of a tile (or of 16-element steps into it) for wgmma: 128-byte swizzle, groups of 8 rows 1024 bytes apart.
// The same figures serve K-major operands (rows are the n of B) and MN-major ones (rows are the k of B) because n is
// one swizzle row wide.
__device__ __forceinline__ uint64_t tile_descriptor(const void* tile) {
  uint64_t address = (shared_address(tile) & 0x3FFFF) >> 4;
  return address | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}
// The descriptor of an MN-major tile whose columns from 64 on are the tile `next`, at a higher address (the leading
// offset).
__device__ __forceinline__ uint64_t wide_descriptor(const void* tile, const void* next) {
  return tile_descriptor(tile) + ((uint64_t((shared_address(next) - shared_address(tile)) >> 4) - 1) << 16);
}
// A descriptor moved by a multiple of 16 bytes; the high half of `by` is added to the leading offset.
__device__ __forceinline__ uint64_t moved_descriptor(uint64_t descriptor, uint32_t by) {
  return (descriptor >> 32 << 32) | (uint32_t(descriptor) + by);
}
constexpr uint64_t kStepColumns = 32 >> 4;                          // 16 columns on, K-major
constexpr uint64_t kStepRows = 16 * 128 >> 4;                       // 16 rows on, MN-major
constexpr uint64_t kStepRowsAlone = kStepRows - (kStepRows << 16);  // the same, with the second tile in place

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Pending> __device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
// wgmma_wait<0> made distinct: the compiler merges equal statements of two branches and moves them before these.
template <int Branch = 0> __device__ __forceinline__ void wgmma_wait_in_branch() {
  asm volatile("wgmma.wait_group.sync.aligned 0;  // in branch %0" ::"n"(Branch) : "memory");
}

// Stores four 8 x 8 matrices of 16-bit elements to shared memory, the inverse of ldmatrix (mma.cuh).
__device__ __forceinline__ void stmatrix_x4(uint32_t address, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
}

#define FS_ACC8(d, i)                                                                                         \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define FS_ACC32(d) FS_ACC8(d, 0), FS_ACC8(d, 8), FS_ACC8(d, 16), FS_ACC8(d, 24)
#define FS_REGS32                                                           \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define FS_WGMMA_RS(TYPE, BT)                                                   \
  asm volatile(                                                                 \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                              \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " " FS_REGS32 \
      ", {%32, %33, %34, %35}, %36, p, 1, 1, " BT ";\n}\n"                      \
      : FS_ACC32(d)                                                             \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate)))
#define FS_WGMMA_SS(TYPE)                                                                                         \
  asm volatile(                                                                                                   \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                                                \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " " FS_REGS32 ", %32, %33, p, 1, 1, 0, 0;\n}\n" \
      : FS_ACC32(d)                                                                                               \
      : "l"(a), "l"(b), "r"(int(accumulate)))

// d (64 x 64, fp32) = [d +] a (64 x 16, registers) b; Rows says how b's tile lies: rows are n (0, K-major) or k (1,
// MN-major).
template <typename T, int RowsAreK>
__device__ __forceinline__ void wgmma_64x64x16(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
  if constexpr (std::is_same_v<T, __half>) {
    if constexpr (RowsAreK)
      FS_WGMMA_RS("f16", "1");
    else
      FS_WGMMA_RS("f16", "0");
  } else {
    if constexpr (RowsAreK)
      FS_WGMMA_RS("bf16", "1");
    else
      FS_WGMMA_RS("bf16", "0");
  }
}

// The same with a from shared memory, both operands K-major.
template <typename T>
__device__ __forceinline__ void wgmma_64x64x16(float (&d)[32], uint64_t a, uint64_t b, bool accumulate) {
  if constexpr (std::is_same_v<T, __half>)
    FS_WGMMA_SS("f16");
  else
    FS_WGMMA_SS("bf16");
}

// The same for 72 and 128 columns of b, whose rows are k (MN-major): columns from 64 on come from a second tile, as far
// behind the first as the descriptor's leading offset says (wide_descriptor).
#define FS_WGMMA_WIDE(TYPE, SHAPE, ACC, REGS, A0, A1, A2, A3, B)                                                     \
  asm volatile("wgmma.mma_async.sync.aligned." SHAPE ".f32." TYPE "." TYPE " " REGS ", {" A0 ", " A1 ", " A2 ", " A3 \
               "}, " B ", 1, 1, 1, 1;\n"                                                                             \
               : ACC                                                                                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define FS_REGS36                                                                                                   \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, "                                                                                                           \
  "%25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35}"
#define FS_REGS64                                                                                                   \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, "                                                                                                           \
  "%25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "  \
  "%47, "                                                                                                           \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define FS_ACC36(d) FS_ACC32(d), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define FS_ACC64(d) FS_ACC32(d), FS_ACC8(d, 32), FS_ACC8(d, 40), FS_ACC8(d, 48), FS_ACC8(d, 56)

template <typename T> __device__
__forceinline__ void wgmma_64x72x16(float (&d)[36], const uint32_t (&a)[4], uint64_t b) {
  if constexpr (std::is_same_v<T, __half>)
    FS_WGMMA_WIDE("f16", "m64n72k16", FS_ACC36(d), FS_REGS36, "%36", "%37", "%38", "%39", "%40");
  else
    FS_WGMMA_WIDE("bf16", "m64n72k16", FS_ACC36(d), FS_REGS36, "%36", "%37", "%38", "%39", "%40");
}

template <typename T>
__device__ __forceinline__ void wgmma_64x128x16(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  if constexpr (std::is_same_v<T, __half>)
    FS_WGMMA_WIDE("f16", "m64n128k16", FS_ACC64(d), FS_REGS64, "%64", "%65", "%66", "%67", "%68");
  else
    FS_WGMMA_WIDE("bf16", "m64n128k16", FS_ACC64(d), FS_REGS64, "%64", "%65", "%66", "%67", "%68");
}

// d (64 x 128) = [d +] a (64 x 16) b, both from shared memory and K-major: b is two tiles, one behind the other.
#define FS_WGMMA_SS128(TYPE)                                                                                       \
  asm volatile(                                                                                                    \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                                 \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " " FS_REGS64 ", %64, %65, p, 1, 1, 0, 0;\n}\n" \
      : FS_ACC64(d)                                                                                                \
      : "l"(a), "l"(b), "r"(int(accumulate)))
template <typename T> __device__
__forceinline__ void wgmma_64x128x16(float (&d)[64], uint64_t a, uint64_t b, bool accumulate) {
  if constexpr (std::is_same_v<T, __half>)
    FS_WGMMA_SS128("f16");
  else
    FS_WGMMA_SS128("bf16");
}

#undef FS_WGMMA_SS128
#undef FS_WGMMA_WIDE
#undef FS_REGS36
#undef FS_REGS64
#undef FS_ACC36
#undef FS_ACC64
#undef FS_WGMMA_RS
#undef FS_WGMMA_SS
#undef FS_REGS32
#undef FS_ACC32
#undef FS_ACC8

// Keeps the compiler from moving uses of accumulators across an asynchronous product that writes them.
template <int N> __device__ __forceinline__ void fence_registers(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// cuTensorMapEncodeTiled, found through the runtime so that a machine without a driver can load this library; nullptr
// without one.
using EncodeTiled = decltype(&cuTensorMapEncodeTiled);
inline EncodeTiled encode_tiled() {
  static EncodeTiled found = [] {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult result;
    cudaError_t status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address, 12000, cudaEnableDefault, &result);
    return status == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<EncodeTiled>(address)
                                                                          : nullptr;
  }();
  return found;
}

// Encodes the map of a tensor of 16-bit elements, dimensions outermost first, for boxes of rows of a tile. nullptr when
// good, else what TMA lacks.
template <int Rank> const char* encode_map(CUtensorMap* map, bool bfloat16, const void* data,
                                           const int64_t (&sizes)[Rank], const int64_t (&strides)[Rank],
                                           const int64_t (&box)[Rank]) {
  if (reinterpret_cast<uintptr_t>(data) % 16) return "unsupported: an address that is not a multiple of 16 bytes (TMA)";
  if (strides[Rank - 1] != 1) return "unsupported: a last dimension that is not contiguous (TMA)";
  cuuint64_t extent[Rank], pitch[Rank - 1];
  cuuint32_t sides[Rank], step[Rank];
  for (int i = 0; i < Rank; ++i) {
    extent[i] = cuuint64_t(sizes[Rank - 1 - i]);
    sides[i] = cuuint32_t(box[Rank - 1 - i]);
    step[i] = 1;
  }
  for (int i = 0; i < Rank - 1; ++i) {
    // A dimension of one element has no meaningful stride; TMA still wants a legal one.
    int64_t bytes = sizes[Rank - 2 - i] == 1 ? 16 : strides[Rank - 2 - i] * 2;
    if (bytes % 16 || bytes <= 0) return "unsupported: strides that are not positive multiples of 16 bytes (TMA)";
    pitch[i] = cuuint64_t(bytes);
  }
  EncodeTiled encode = encode_tiled();
  if (!encode) return "no cuTensorMapEncodeTiled in this driver";
  CUresult status =
      encode(map, bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, Rank,
             const_cast<void*>(data), extent, pitch, sides, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return status == CUDA_SUCCESS ? nullptr : "cuTensorMapEncodeTiled refused the tensor";
}

// The same from a cache per thread: a map depends on the tensor's address and layout alone, and the driver takes about
// a microsecond to encode one. Loops reuse their buffers, so a direct-mapped cache is enough.
template <int Rank> const char* cached_map(CUtensorMap* map, bool bfloat16, const void* data,
                                           const int64_t (&sizes)[Rank], const int64_t (&strides)[Rank],
                                           const int64_t (&box)[Rank]) {
  struct Slot {
    int64_t key[2 + 3 * Rank];
    CUtensorMap map;
  };
  constexpr int slots = 64;
  thread_local Slot cache[slots] = {};  // a key of zeros matches no tensor: sizes are at least 1
  int64_t key[2 + 3 * Rank] = {int64_t(reinterpret_cast<uintptr_t>(data)), bfloat16};
  memcpy(key + 2, sizes, sizeof sizes);
  memcpy(key + 2 + Rank, strides, sizeof strides);
  memcpy(key + 2 + 2 * Rank, box, sizeof box);
  uint64_t hash = 0;
  for (int64_t word : key) hash = (hash ^ uint64_t(word)) * 0x9e3779b97f4a7c15ull;
  Slot& slot = cache[hash >> 58];
  static_assert(slots == 64);  // the top six bits
  if (memcmp(slot.key, key, sizeof key) != 0) {
    if (const char* why = encode_map(&slot.map, bfloat16, data, sizes, strides, box)) {
      slot.key[2] = 0;
      return why;
    }
    memcpy(slot.key, key, sizeof key);
  }
  *map = slot.map;
  return nullptr;
}

// The map of a tensor (batch, head, row, column) for tiles of 64 rows and 64 columns.
inline const char* make_map(CUtensorMap* map, bool bfloat16, const void* data, const int64_t (&sizes)[4],
                            const int64_t (&strides)[4]) {
  return cached_map(map, bfloat16, data, sizes, strides, {1, 1, 64, 64});
}

// The same in strided-permuted order (mod `modulus`, a divisor of the rows): dimensions (batch, head, residue, index,
// column), where row index * modulus + residue is at position residue * length + index, length = rows / modulus. A box
// is 64 positions or a divisor of that: part of one residue class, or several whole ones where they are shorter. With
// modulus 1 the order is unchanged and any number of rows is allowed.
inline const char* make_ordered_map(CUtensorMap* map, bool bfloat16, const void* data, const int64_t (&sizes)[4],
                                    const int64_t (&strides)[4], int64_t modulus, int64_t rows = 64) {
  const int64_t length = sizes[2] / modulus, side = modulus == 1 || length > rows ? rows : length;
  return cached_map<5>(map, bfloat16, data, {sizes[0], sizes[1], modulus, length, sizes[3]},
                       {strides[0], strides[1], strides[2], modulus * strides[2], strides[3]},
                       {1, 1, rows / side, side, 64});
}

// Lets a kernel use `bytes` of dynamic shared memory on the current device; calls the driver only for a new maximum.
template <auto Kernel> const char* allow_shared_up_to(int bytes) {
  constexpr int most = 64;
  static std::atomic<int> allowed[most];
  int device = 0;
  cudaGetDevice(&device);
  if (device < most && allowed[device].load(std::memory_order_relaxed) >= bytes) return nullptr;
  if (cudaError_t status = cudaFuncSetAttribute(Kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) {
    cudaGetLastError();  // clear the error, which the next launch would report
    return cudaGetErrorString(status);
  }
  if (device < most) {
    int before = allowed[device].load();
    while (before < bytes && !allowed[device].compare_exchange_weak(before, bytes)) {
    }
  }
  return nullptr;
}

}  // namespace hopper
