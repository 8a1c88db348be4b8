// Hopper's warpgroup matrix products of e4m3 (sm_90a), as thin wrappers, and what they need: descriptors, packing and
// copies of whole tiles.
//
// Both operands are K-major: a row of a tile in shared memory holds what is summed over. Tiles lie swizzled over rows
// of 64 or 128 bytes (swizzle.cuh), groups of eight rows one behind the other, each tile at a multiple of eight rows.
// Accumulators are those of 16-bit products (hopper_wgmma.cuh). A in registers, 64 x 32: with warp w of the warpgroup,
// g = lane / 4, t = lane % 4, byte i of
//   a[0], a[1]   row 16 w + g, and eight further on, column 4 t + i
//   a[2], a[3]   the same rows, column 16 + 4 t + i
// (PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk32").
#pragma once
#include "hopper.cuh"

namespace hopper {
constexpr uint32_t kStepBytes = 32 >> 4;  // of a descriptor: 32 columns on

// Descriptor of a tile whose rows have RowBytes bytes, or of a multiple of 32 columns into it.
template <int RowBytes> __device__ __forceinline__ uint64_t fp8_descriptor(const void* tile) {
  static_assert(RowBytes == 64 || RowBytes == 128);
  const uint64_t address = (shared_address(tile) & 0x3FFFF) >> 4;
  return address | uint64_t(1) << 16 | uint64_t(8 * RowBytes >> 4) << 32 | uint64_t(RowBytes == 128 ? 1 : 2) << 62;
}

// Four numbers as e4m3, the first in the lowest byte: rounded to nearest even; beyond +-448 that; NaN stays NaN.
__device__ __forceinline__ uint32_t pack_e4m3(float x0, float x1, float x2, float x3) {
  uint32_t four;
  asm("{\n.reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n}\n"
      : "=r"(four)
      : "f"(x0), "f"(x1), "f"(x2), "f"(x3));
  return four;
}

// Copies `bytes` (a multiple of 16) of global to shared memory; both addresses are multiples of 16.
__device__ __forceinline__ void load_bytes(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(reinterpret_cast<uint64_t>(from)), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

// d (16 x 8) += a (16 x 32) b, by one warp; registers as ldmatrix gives them of rows of 32 bytes.
__device__ __forceinline__ void mma_e4m3_m16n8k32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#define FS_ACC4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define FS_ACC16(d, i) FS_ACC4(d, i), FS_ACC4(d, i + 4), FS_ACC4(d, i + 8), FS_ACC4(d, i + 12)
#define FS_ACC32(d) FS_ACC16(d, 0), FS_ACC16(d, 16)
#define FS_ACC36(d) FS_ACC32(d), FS_ACC4(d, 32)
#define FS_ACC68(d) FS_ACC32(d), FS_ACC16(d, 32), FS_ACC16(d, 48), FS_ACC4(d, 64)
#define FS_REGS32                                                                                         \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define FS_REGS36                                                                                         \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35}"
#define FS_REGS68                                                                                         \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "  \
  "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "  \
  "%62, %63, %64, %65, %66, %67}"
#define FS_FP8_SHAPE(n) "wgmma.mma_async.sync.aligned.m64n" n "k32.f32.e4m3.e4m3 "

// d (64 x 64) = [d +] a (64 x 32) b, both from shared memory.
__device__ __forceinline__ void wgmma_fp8(float (&d)[32], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n" FS_FP8_SHAPE("64") FS_REGS32 ", %32, %33, p, 1, 1;\n}\n"
               : FS_ACC32(d)
               : "l"(a), "l"(b), "r"(int(accumulate)));
}
// d (64 x 72 or 136) = [d +] a (64 x 32, registers) b
__device__ __forceinline__ void wgmma_fp8(float (&d)[36], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %41, 0;\n" FS_FP8_SHAPE("72") FS_REGS36
               ", {%36, %37, %38, %39}, %40, p, 1, 1;\n}\n"
               : FS_ACC36(d)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate)));
}
__device__ __forceinline__ void wgmma_fp8(float (&d)[68], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %73, 0;\n" FS_FP8_SHAPE("136") FS_REGS68
               ", {%68, %69, %70, %71}, %72, p, 1, 1;\n}\n"
               : FS_ACC68(d)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate)));
}

#undef FS_FP8_SHAPE
#undef FS_REGS68
#undef FS_REGS36
#undef FS_REGS32
#undef FS_ACC68
#undef FS_ACC36
#undef FS_ACC32
#undef FS_ACC16
#undef FS_ACC4
}  // namespace hopper
