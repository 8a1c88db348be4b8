// Properties of the current device that launchers need, and alignment of addresses.
#pragma once
#include <cuda_runtime.h>
#include <stdint.h>

#include <atomic>

inline bool aligned(const void* p, int bytes) { return reinterpret_cast<uintptr_t>(p) % uintptr_t(bytes) == 0; }

inline int current_device() {
  int device = 0;
  cudaGetDevice(&device);
  return device;
}

// Streaming multiprocessors of the current device; queried once per device.
inline int multiprocessors() {
  constexpr int most = 64;
  static std::atomic<int> known[most];
  const int device = current_device();
  if (device < most && known[device] > 0) return known[device];
  int count = 1;
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  if (device < most) known[device] = count;
  return count;
}

// Lets a kernel use `bytes` of dynamic shared memory on the current device (more than 48 KiB needs this);
// set once per kernel and device. nullptr, or CUDA's text where the device has less.
template <auto Kernel> const char* allow_shared(int bytes) {
  static std::atomic<uint64_t> done{0};
  const int device = current_device();
  const uint64_t bit = device < 64 ? uint64_t(1) << device : 0;
  if (done & bit) return nullptr;
  const cudaError_t status = cudaFuncSetAttribute(Kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (status != cudaSuccess) {
    cudaGetLastError();  // clear the error, which the next launch would report
    return cudaGetErrorString(status);
  }
  done |= bit;
  return nullptr;
}
