// Warp-level matrix instructions, as thin wrappers: mma.sync with fp32 accumulation, and ldmatrix, which fills its
// operands.
//
// Fragments of mma.m16n8k16, with g = lane / 4 and t = lane % 4; a register holds two 16-bit elements, the lower index
// low:
//   A (16 x 16)  a[0] row g, columns 2t, 2t+1     a[1] row g+8, columns 2t, 2t+1
//                a[2] row g, columns 2t+8, 2t+9   a[3] row g+8, columns 2t+8, 2t+9
//   B (16 x 8)   b[0] rows 2t, 2t+1, column g     b[1] rows 2t+8, 2t+9, column g
//   C, D (16 x 8, fp32)  d[0], d[1] row g, columns 2t, 2t+1     d[2], d[3] row g+8, columns 2t, 2t+1
// (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".)
//
// Two neighbouring 8-column accumulators of one warp are, packed to 16 bits, exactly the A operand of the next product:
// a[0] = pack(d0[0], d0[1]), a[1] = pack(d0[2], d0[3]), a[2] = pack(d1[0], d1[1]), a[3] = pack(d1[2], d1[3]).
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

namespace tensor_core {

// The 32-bit address of a shared-memory location, as ldmatrix and cp.async expect it.
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// d += a b for one 16 x 8 x 16 product. T: __half or __nv_bfloat16. sm_80 and newer; traps where it is built for less.
template <typename T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

template <>
__device__ __forceinline__ void mma_m16n8k16<__half>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();
#endif
}

template <> __device__ __forceinline__ void mma_m16n8k16<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4],
                                                                        const uint32_t (&b)[2]) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();
#endif
}

// ldmatrix loads four 8 x 8 matrices of 16-bit elements: lanes 8i .. 8i+7 give the addresses of the rows of matrix i
// (16 bytes each, 16-byte aligned), and r[i] becomes row lane / 4, elements 2 (lane % 4) and the next, of matrix i. The
// transposed form gives the same of the transposed matrices. Which lane points where, for the operands above (an
// 8-element piece of a row is a chunk):
//   A, stored [m][k]   plain        row lane % 16,                  chunk lane / 16       -> a[0..3]
//   A, stored [k][m]   transposed   row lane % 8 + 8 (lane / 16),   chunk (lane / 8) % 2  -> a[0..3]
//   B, stored [n][k]   plain        row lane % 8 + 8 (lane / 16),   chunk (lane / 8) % 2  -> b0[0..1], b1[0..1]
//   B, stored [k][n]   transposed   row lane % 16,                  chunk lane / 16       -> b0[0..1], b1[0..1]
// where b0 and b1 are the operands of two neighbouring 8-column products.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x2(uint32_t (&r)[2], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&r)[2], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(address)
               : "memory");
}

// Two fp32 values rounded to nearest and packed, the first in the low half.
template <typename T> __device__ __forceinline__ uint32_t pack(float low, float high);
template <> __device__ __forceinline__ uint32_t pack<__half>(float low, float high) {
  __half2 pair = __floats2half2_rn(low, high);
  return reinterpret_cast<uint32_t&>(pair);
}
template <> __device__ __forceinline__ uint32_t pack<__nv_bfloat16>(float low, float high) {
  __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<uint32_t&>(pair);
}

}  // namespace tensor_core
