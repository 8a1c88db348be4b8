// Blocks whose warpgroups have roles of their own (sm_90a): registers moved from one warpgroup to another.
#pragma once

namespace hopper {

// Registers of each thread of the warpgroup from here on, in eights; by all its warps, in kernels of
// __launch_bounds__(threads, 1) alone. A warpgroup waits until others have given up as many: together they never have
// more than the block had at its start.
template <int Count> __device__ __forceinline__ void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count> __device__ __forceinline__ void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}

}  // namespace hopper
