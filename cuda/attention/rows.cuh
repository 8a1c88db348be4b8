// Rows of q, k, v and the bias as the kernels find them that load without TMA: in 16-byte pieces where that is
// possible, else by elements.
#pragma once
#include "../common/launch.cuh"
#include "attention.cuh"

// Eight neighbouring elements of a row.
template <typename T> struct alignas(16) Eight {
  T value[8];
};

// vectors: they are contiguous and begin at a multiple of 16 bytes.
template <typename T>
__device__ __forceinline__ Eight<T> load_eight(const T* from, int64_t column_stride, bool vectors) {
  Eight<T> out;
  if (vectors) {
    constexpr int parts = sizeof(Eight<T>) / 16;
#pragma unroll
    for (int i = 0; i < parts; ++i) reinterpret_cast<uint4*>(&out)[i] = reinterpret_cast<const uint4*>(from)[i];
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) out.value[i] = from[i * column_stride];
  }
  return out;
}

// Whether every row of a tensor of elements of `size` bytes is contiguous and begins at a multiple of 16 bytes.
inline bool has_vectors(const void* p, const int64_t (&stride)[4], int size) {
  bool good = reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride[3] == 1;
  for (int i = 0; i < 3; ++i) good = good && stride[i] * size % 16 == 0;
  return good;
}

__device__ __forceinline__ float bias_at(const AttentionArgs& a, int64_t i) {
  if (a.bias_dtype == FS_FLOAT32) return static_cast<const float*>(a.bias)[i];
  if (a.bias_dtype == FS_FLOAT16) return __half2float(static_cast<const __half*>(a.bias)[i]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(a.bias)[i]);
}
