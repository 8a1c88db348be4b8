// Reads rows of depth elements by groups of eight lanes, 16 bytes per lane, for kernels over single keys.
#pragma once
#include "device.cuh"
#include "launch.cuh"

namespace groups {
constexpr int LANES = 8, GROUPS = 32 / LANES;

template <typename T> struct alignas(16) Pack {
  T value[16 / sizeof(T)];
};

template <typename T> constexpr int WIDTH = 16 / int(sizeof(T));  // elements of a pack
template <typename T> constexpr int CHUNK = LANES * WIDTH<T>;     // elements that a group reads at once

// The pack that begins at row[at]; zeros beyond depth. Wide: rows begin at multiples of 16 bytes and hold whole packs.
template <typename T, bool Wide> __device__ __forceinline__ Pack<T> read(const T* row, int64_t at, int64_t depth) {
  Pack<T> pack;
  if constexpr (Wide) {
    if (at < depth) return *reinterpret_cast<const Pack<T>*>(row + at);
  }
#pragma unroll
  for (int e = 0; e < WIDTH<T>; ++e) pack.value[e] = !Wide && at + e < depth ? row[at + e] : from_float<T>(0.0f);
  return pack;
}

// Whether rows may be read 16 bytes at a time.
template <typename T> bool wide(const void* base, const int64_t* steps, int count, int64_t depth) {
  bool fits = aligned(base, 16) && depth % WIDTH<T> == 0;
  for (int i = 0; i < count; ++i) fits = fits && steps[i] % WIDTH<T> == 0;
  return fits;
}
}  // namespace groups
