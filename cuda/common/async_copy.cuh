// cp.async: copies from global to shared memory that bypass registers and complete in the background (sm_80 and newer).
//
// A thread issues copies, closes them into a group by commit(), and waits with wait<N>() until at most N of its latest
// groups are unfinished; __syncthreads() after it makes the data of all threads visible. Commit every stage, also an
// empty one, so that counting groups stays right at the tail.
#pragma once
#include <stdint.h>

namespace async_copy {

// 16 bytes, past L1. Both addresses are multiples of 16. Where keep is false nothing is read (the source may then be
// any valid address) and zeros are written.
__device__ __forceinline__ void copy16(uint32_t shared, const void* global, bool keep = true) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  int bytes = keep ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes)
               : "memory");
#else
  __trap();
#endif
}

// As copy16, but only the first `bytes` (0 .. 16) are read; the rest of the 16 is written as zeros.
__device__ __forceinline__ void copy16_partial(uint32_t shared, const void* global, int bytes) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes)
               : "memory");
#else
  __trap();
#endif
}

// An ordinary 16-byte store to the same kind of address, for data that has to come through registers.
__device__ __forceinline__ void store16(uint32_t shared, const uint32_t (&word)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(word[0]), "r"(word[1]), "r"(word[2]),
               "r"(word[3])
               : "memory");
}

__device__ __forceinline__ void commit() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int Pending> __device__ __forceinline__ void wait() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#endif
}

}  // namespace async_copy
