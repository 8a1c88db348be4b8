// Loads eight neighbouring elements of a row: as 16-byte vectors where possible, else one by one.
#pragma once
#include <stdint.h>

#include "launch.cuh"

// vectors: they are contiguous and begin at a multiple of 16 bytes, as `to` does. Zeros where not inside.
template <typename T> __device__ __forceinline__ void load_eight(T (&to)[8], const T* from, int64_t column_stride,
                                                                 bool vectors, bool inside) {
  if (!inside) {
#pragma unroll
    for (int e = 0; e < 8; ++e) to[e] = from_float<T>(0.f);
  } else if (vectors) {
    constexpr int chunks = sizeof(T) * 8 / 16;
#pragma unroll
    for (int i = 0; i < chunks; ++i) reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  } else {
#pragma unroll
    for (int e = 0; e < 8; ++e) to[e] = from[e * column_stride];
  }
}

template <typename T> struct alignas(16) Eight {
  T value[8];
};
template <typename T>
__device__ __forceinline__ Eight<T> load_eight(const T* from, int64_t column_stride, bool vectors) {
  Eight<T> out;
  load_eight(out.value, from, column_stride, vectors, true);
  return out;
}

// Whether every row of a tensor of elements of `size` bytes is contiguous and begins at a multiple of 16 bytes; the
// stride of columns is the last.
template <int Rank> inline bool has_vectors(const void* p, const int64_t (&stride)[Rank], int size) {
  bool good = reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride[Rank - 1] == 1;
  for (int i = 0; i < Rank - 1; ++i) good = good && stride[i] * size % 16 == 0;
  return good;
}

// Which of q, k and v have rows that can be loaded as 16-byte vectors: bits 0, 1 and 2.
template <typename Args> inline int vectors_of(const Args& a, int size) {
  return has_vectors(a.q, a.q_stride, size) | has_vectors(a.k, a.k_stride, size) << 1 |
         has_vectors(a.v, a.v_stride, size) << 2;
}
