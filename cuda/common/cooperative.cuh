// Launches whose blocks all run at the same time and publish values to one another through global memory, without
// barriers over the grid.
//
// What is to be published is filled with ones before the launch. A thread that needs a value loads it until it is no
// longer all ones, which no number is that a writer stores: the NaN with those bits is stored as another one. So a
// value is its own flag, and each is written once in a launch.
#pragma once
#include <cuda_runtime.h>
#include <stdint.h>

#include <utility>

#include "device.cuh"
#include "launch.cuh"

namespace cooperative {

// Whether all values of Bits bits in these words have been written.
template <int Bits, int N> __device__ __forceinline__ bool is_written(const uint32_t (&word)[N]) {
  bool all = true;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (Bits == 32) all = all && word[i] != 0xffffffffu;
    if (Bits == 16) all = all && word[i] < 0xffff0000u && (word[i] & 0xffffu) != 0xffffu;
  }
  return all;
}

// 4, 8 or 16 bytes as they are now, whatever a cache of this multiprocessor has.
__device__ __forceinline__ void load_relaxed(uint32_t (&v)[1], const void* from) {
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v[0]) : "l"(from) : "memory");
}
__device__ __forceinline__ void load_relaxed(uint32_t (&v)[2], const void* from) {
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];" : "=r"(v[0]), "=r"(v[1]) : "l"(from) : "memory");
}
__device__ __forceinline__ void load_relaxed(uint32_t (&v)[4], const void* from) {
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "l"(from)
               : "memory");
}
// What this block has waited for, by whichever thread.
template <typename V> __device__ __forceinline__ V load(const V* from) { return __ldcg(from); }
// Between two loads of what is not yet written.
__device__ __forceinline__ void before_retry() {}

// Stores a value that other blocks wait for.
__device__ __forceinline__ void publish(float* to, float v) {
  uint32_t bits = __float_as_uint(v);
  bits = bits == 0xffffffffu ? 0x7fffffffu : bits;
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(bits) : "memory");
}
template <typename T> __device__ __forceinline__ void publish(T* to, T v) {
  static_assert(sizeof(T) == 2);
  uint16_t bits = reinterpret_cast<const uint16_t&>(v);
  bits = bits == 0xffffu ? 0x7fffu : bits;
  asm volatile("st.relaxed.gpu.global.u16 [%0], %1;" ::"l"(to), "h"(bits) : "memory");
}

// __syncthreads() for the first Threads threads of a block, whole warps.
template <int Threads> __device__ __forceinline__ void sync_first() {
  asm volatile("bar.sync 1, %0;" ::"n"(Threads) : "memory");
}

// Blocks of one per multiprocessor that may be launched together.
inline int most_blocks() { return multiprocessors(); }

// Launches so many blocks, which must all fit at once, after filling `bytes` at `published` with ones; nullptr, the
// refusal of a device or stream that does not hold them, or CUDA's error text.
template <typename... Parameters, typename... Given>
const char* launch(void (*kernel)(Parameters...), int blocks, int threads, int shared_bytes, cudaStream_t stream,
                   void* published, int64_t bytes, Given&&... given) {
  cudaMemsetAsync(published, 0xff, size_t(bytes), stream);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = unsigned(blocks), config.blockDim = unsigned(threads);
  config.dynamicSmemBytes = size_t(shared_bytes), config.stream = stream;
  config.attrs = &attribute, config.numAttrs = 1;
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, std::forward<Given>(given)...);
  const char* const why = launch_error();  // reads the error in any case: the next launch would report it
  if (status == cudaErrorNotSupported) return "unsupported: a device without cooperative launches";
  if (status == cudaErrorCooperativeLaunchTooLarge)
    return "unsupported: multiprocessors that do not hold one block each at the same time";
  return why;
}

}  // namespace cooperative
