// Reductions over a warp by shuffles, and over a block by shuffles and one line of shared memory; every thread gets the
// result.
#pragma once
#include <cuda_runtime.h>

struct Sum {
  static __device__ __forceinline__ float identity() { return 0.0f; }
  static __device__ __forceinline__ float combine(float a, float b) { return a + b; }
};

struct Max {
  static __device__ __forceinline__ float identity() { return -INFINITY; }
  static __device__ __forceinline__ float combine(float a, float b) { return fmaxf(a, b); }
};

template <typename Operation> __device__ __forceinline__ float warp_reduce(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    value = Operation::combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}

// Over the Threads threads of a group: a warp (32), or a whole one-dimensional block (a multiple of 32, up to 1024).
// For a block, all its threads must arrive here.
template <typename Operation, int Threads> __device__ __forceinline__ float group_reduce(float value) {
  static_assert(Threads % 32 == 0 && Threads <= 1024, "whole warps, at most a block");
  value = warp_reduce<Operation>(value);
  if constexpr (Threads > 32) {
    __shared__ float part[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads();  // an earlier reduction's results have been read
    if (lane == 0) part[warp] = value;
    __syncthreads();
    value = warp_reduce<Operation>(lane < Threads / 32 ? part[lane] : Operation::identity());
  }
  return value;
}
