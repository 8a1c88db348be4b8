// What warpgroups of one block need between them beside wgmma and TMA (sm_90a): barriers of their own, a counter, the
// proxy fence.
#pragma once
#include <stdint.h>

namespace hopper {

// What all lanes of a warp share, known as such to the compiler, which then keeps it in uniform registers.
__device__ __forceinline__ int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

// A barrier of the 128 threads of warpgroup 0 or 1; constant numbers, because a number in a register reserves all
// sixteen.
__device__ __forceinline__ void warpgroup_barrier(int wg) {
  if (wg == 0)
    asm volatile("bar.sync 1, 128;" ::: "memory");
  else
    asm volatile("bar.sync 2, 128;" ::: "memory");
}

// Adds 1 to a counter in shared memory and returns what it was; what came before is seen by who comes after.
__device__ __forceinline__ uint32_t count_up(uint32_t* counter) {
  uint32_t before;
  asm volatile("atom.acq_rel.cta.shared::cta.add.u32 %0, [%1], 1;"
               : "=r"(before)
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(counter)))
               : "memory");
  return before;
}

// Ordinary stores to shared memory before it are seen by wgmma and TMA after it (and after a barrier, those of other
// threads).
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace hopper
