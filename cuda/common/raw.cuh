// Packs of a row as they lie in memory. A conversion waits for its load, so a kernel that wants several loads in flight
// reads all of them like this first and converts then.
#pragma once
#include "launch.cuh"

namespace row {

// Width neighbouring elements, read and written in one access: 16 bytes, or one element.
template <typename T, int Width> struct alignas(sizeof(T) * Width) Raw {
  T value[Width];

  __device__ __forceinline__ void read(const T* from) { *this = *reinterpret_cast<const Raw*>(from); }
  __device__ __forceinline__ void write(T* to) const { *reinterpret_cast<Raw*>(to) = *this; }
  __device__ __forceinline__ float operator[](int e) const { return to_float(value[e]); }
  __device__ __forceinline__ void set(int e, float v) { value[e] = from_float<T>(v); }
};

}  // namespace row
