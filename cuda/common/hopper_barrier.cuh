// Hopper's mbarriers, on which threads wait for copies and for one another.
#pragma once
#include <stdint.h>

namespace hopper {
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
}  // namespace hopper
