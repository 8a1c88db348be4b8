// Programmatic dependent launch: a kernel's blocks may start while those of the one before it on the stream still run
// (sm_90 and newer).
//
// A kernel that is launched so calls wait_for_previous() in every thread before it reads what an earlier kernel wrote,
// unless the host has waited for that, or writes anything, and let_next_start() only after that: so when a kernel's
// blocks start, all but the one before it are complete.
#pragma once
#include <cuda_runtime.h>

#include <atomic>
#include <utility>

#include "device.cuh"
#include "launch.cuh"

// Returns when the kernel before this one is complete and what it wrote can be read; at once where it was launched
// without overlap.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Compute capability of the current device, 90 for 9.0; queried once per device.
inline int compute_capability() {
  constexpr int most = 64;
  static std::atomic<int> known[most];
  const int device = current_device();
  if (device < most && known[device] > 0) return known[device];
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (device < most) known[device] = 10 * major + minor;
  return 10 * major + minor;
}

// Launches with overlap where the device supports it, in clusters of so many blocks along x; nullptr, or CUDA's error
// text.
template <typename... Parameters, typename... Given>
const char* launch_dependent(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, int shared_bytes,
                             cudaStream_t stream, unsigned cluster, Given&&... given) {
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (compute_capability() >= 90) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {cluster, 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks, config.blockDim = threads, config.dynamicSmemBytes = size_t(shared_bytes),
  config.stream = stream;
  config.attrs = attributes, config.numAttrs = count;
  cudaLaunchKernelEx(&config, kernel, std::forward<Given>(given)...);
  return launch_error();
}
