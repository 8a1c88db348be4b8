// Synchronisation between the warpgroups of a block (sm_90a): named barriers, a counter, the proxy fence.
#pragma once
#include <stdint.h>

namespace hopper {

// A value that is the same in all lanes; the shuffle tells the compiler, which then uses uniform registers.
__device__ __forceinline__ int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

// A named barrier of the 128 threads of warpgroup 0 or 1; its number is an immediate because one in a register reserves
// all sixteen.
__device__ __forceinline__ void warpgroup_barrier(int wg) {
  if (wg == 0)
    asm volatile("bar.sync 1, 128;" ::: "memory");
  else
    asm volatile("bar.sync 2, 128;" ::: "memory");
}

// The same of warpgroup 0, 1 or 2.
__device__ __forceinline__ void warpgroup_barrier_of_three(int wg) {
  if (wg == 2)
    asm volatile("bar.sync 3, 128;" ::: "memory");
  else
    warpgroup_barrier(wg);
}

// The same of warpgroup 0, 1, 2 or 3.
__device__ __forceinline__ void warpgroup_barrier_of_four(int wg) {
  if (wg == 3)
    asm volatile("bar.sync 4, 128;" ::: "memory");
  else
    warpgroup_barrier_of_three(wg);
}

// The same of two, and whether `mine` holds for any of them.
__device__ __forceinline__ bool warpgroup_any(int wg, bool mine) {
  uint32_t any;
  if (wg == 0)
    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; bar.red.or.pred q, 1, 128, p; selp.u32 %0, 1, 0, q; }"
                 : "=r"(any)
                 : "r"(uint32_t(mine))
                 : "memory");
  else
    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; bar.red.or.pred q, 2, 128, p; selp.u32 %0, 1, 0, q; }"
                 : "=r"(any)
                 : "r"(uint32_t(mine))
                 : "memory");
  return any;
}

// Increments a counter in shared memory and returns its old value, with acquire-release order.
__device__ __forceinline__ uint32_t count_up(uint32_t* counter) {
  uint32_t before;
  asm volatile("atom.acq_rel.cta.shared::cta.add.u32 %0, [%1], 1;"
               : "=r"(before)
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(counter)))
               : "memory");
  return before;
}

// Makes this thread's stores to shared memory visible to later wgmma and TMA (other threads' after a barrier).
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace hopper
