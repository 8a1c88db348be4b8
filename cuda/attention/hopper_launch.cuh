// Shared memory of the Hopper kernels, allowed once per device and size.
#pragma once
#include <cuda_runtime.h>

#include <atomic>

namespace hopper {
constexpr int kMaxSharedBytes = 232448;  // per block, on sm_90

// Lets a kernel use `bytes` of dynamic shared memory on the current device; calls the driver only for a new maximum.
template <auto Kernel> const char* allow_shared_up_to(int bytes) {
  constexpr int most = 64;
  static std::atomic<int> allowed[most];
  int device = 0;
  cudaGetDevice(&device);
  if (device < most && allowed[device].load(std::memory_order_relaxed) >= bytes) return nullptr;
  if (cudaError_t status = cudaFuncSetAttribute(Kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) {
    cudaGetLastError();  // clear the error, which the next launch would report
    return cudaGetErrorString(status);
  }
  if (device < most) {
    int before = allowed[device].load();
    while (before < bytes && !allowed[device].compare_exchange_weak(before, bytes)) {
    }
  }
  return nullptr;
}
}  // namespace hopper
