// 16 bytes of global memory that are read once, such as weights: they do not displace others from the first-level
// cache.
#pragma once
#include <cuda_runtime.h>

// `from` is a multiple of 16. Not by ld.global.nc, which the assembler moves before the wait for a kernel that may
// write them. Lines: a miss brings the whole line of 128 bytes into the L2 cache.
template <bool Lines> __device__ __forceinline__ void load_once(uint4& v, const void* from) {
#ifdef __CUDA_ARCH__
  if constexpr (Lines)
    asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
  else
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
#else
  v = *static_cast<const uint4*>(from);
#endif
}
