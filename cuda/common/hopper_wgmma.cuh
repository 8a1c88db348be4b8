// Hopper's warpgroup matrix products (wgmma): descriptors of operands in shared memory, products, and waiting for them.
//
// Accumulators of m64n64k16, with warp w of the warpgroup, g = lane / 4, t = lane % 4:
//   d[4 j + 0], d[4 j + 1]   row 16 w + g,     columns 8 j + 2 t and the next
//   d[4 j + 2], d[4 j + 3]   row 16 w + g + 8, the same columns
// (PTX ISA, "wgmma.mma_async ... Register Fragments"); the A operand from registers is that of mma.m16n8k16 (see
// mma.cuh), row 16 w first.
#pragma once
#include <cuda_fp16.h>

#include <type_traits>

#include "hopper_barrier.cuh"

namespace hopper {
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
}  // namespace hopper
