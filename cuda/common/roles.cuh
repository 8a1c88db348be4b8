// Warp specialisation (sm_90a): moves registers from producer to consumer warpgroups (setmaxnreg).
#pragma once

namespace hopper {

// Sets the registers per thread of the warpgroup, a multiple of 8; called by all its warps, in kernels of
// __launch_bounds__(threads, 1) only. An increase waits until others have released as many: the total never exceeds
// what the block had at its start.
template <int Count> __device__ __forceinline__ void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count> __device__ __forceinline__ void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}

}  // namespace hopper
