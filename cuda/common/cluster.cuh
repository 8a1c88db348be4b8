// Blocks of a cluster that write to each other's shared memory (sm_90 and newer).
//
// A block opens a barrier that counts the bytes it will receive and arrives at the cluster's barrier; once it has
// waited there, every block of the cluster runs and has opened its own, and it may send. Whoever waits until all bytes
// have come may read them. A block that has received all that is sent to it may exit.
#pragma once
#include <stdint.h>

#include <atomic>

#include "device.cuh"
#include "hopper_barrier.cuh"

namespace cluster {
// By one thread, before the block arrives.
__device__ __forceinline__ void open(uint64_t* received, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  hopper::barrier_init(received, 1);
  hopper::barrier_init_fence();
  hopper::barrier_expect(received,
                         bytes);  // may follow the first bytes: the phase ends with this arrival and all bytes
#endif
}

// By all threads of all blocks, once each. Relaxed: what others must see, the barrier, open() has released.
__device__ __forceinline__ void arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Where block `rank` of the cluster has what lies at p here.
__device__ __forceinline__ uint32_t address(const void* p, uint32_t rank) {
  uint32_t there = 0;
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(hopper::shared_address(p)), "r"(rank));
#endif
  return there;
}

// Stores the value where block `rank` has `to`, whose `received` counts its bytes; multiples of 16 or 8 bytes.
__device__ __forceinline__ void send(float4* to, float4 v, uint32_t rank, uint64_t* received) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                   address(to, rank)),
               "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(address(received, rank))
               : "memory");
#endif
}
__device__ __forceinline__ void send(float2* to, float2 v, uint32_t rank, uint64_t* received) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(address(to, rank)),
      "f"(v.x), "f"(v.y), "r"(address(received, rank))
      : "memory");
#endif
}

__device__ __forceinline__ void await(uint64_t* received) {
#if __CUDA_ARCH__ >= 900
  hopper::barrier_wait(received, 0);
#endif
}

// How many clusters of `blocks` blocks of this kernel the current device runs at a time; 0: none of this size. Allows
// more than the eight blocks that every device takes. Asked of the driver once per kernel and device.
template <auto Kernel> int resident(int blocks, int threads, int shared_bytes) {
  constexpr int most = 64;
  static std::atomic<int> known[most];  // one more than the number
  const int device = current_device();
  if (device < most && known[device] > 0) return known[device] - 1;
  int count = 0;
  cudaLaunchAttribute size = {};
  size.id = cudaLaunchAttributeClusterDimension;
  size.val.clusterDim = {unsigned(blocks), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = unsigned(blocks), config.blockDim = unsigned(threads),
  config.dynamicSmemBytes = size_t(shared_bytes);
  config.attrs = &size, config.numAttrs = 1;
  if (cudaFuncSetAttribute(Kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) != cudaSuccess ||
      cudaOccupancyMaxActiveClusters(&count, Kernel, &config) != cudaSuccess) {
    cudaGetLastError();  // clear the error, which the next launch would report
    count = 0;
  }
  if (device < most) known[device] = count + 1;
  return count;
}
}  // namespace cluster
