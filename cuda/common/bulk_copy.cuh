// Hopper's copies of contiguous bytes from global to shared memory by the copy engine.
#pragma once
#include "hopper.cuh"

namespace hopper {
// `bytes` and both addresses are multiples of 16; the barrier counts the bytes as they arrive.
__device__ __forceinline__ void load_bytes(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
}  // namespace hopper
