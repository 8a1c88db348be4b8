// The units of v2's ring buffers: 16 keys or values of one head in shared memory, loaded by one warp.
#pragma once
#include "../common/async_copy.cuh"
#include "../common/launch.cuh"
#include "../common/mma.cuh"

namespace decode {
constexpr int kUnitKeys = 16;

// Byte offset of a 16-byte chunk in a unit of Width elements a row, so that ldmatrix's eight rows lie in different
// banks.
template <int Width> __device__ __forceinline__ uint32_t place(int row, int chunk) {
  const int moved = Width % 64 == 0 ? chunk ^ (row & 7) : chunk ^ ((row >> 1) & 3);
  return uint32_t(row * Width * 2 + moved * 16);
}

// Starts loading 16 rows of one head's keys or values from `from` on; zeros from row `live` on, where nothing is read.
template <typename T, int Width> __device__ __forceinline__ void load_unit(char* unit, const T* from,
                                                                           int64_t row_stride, int64_t column_stride,
                                                                           int live, int head_dim, bool vectors) {
  constexpr int chunks = Width / 8;
  const int lane = threadIdx.x % 32;
  if (!vectors) {
#pragma unroll 1
    for (int index = lane; index < kUnitKeys * chunks; index += 32) {
      const int r = index / chunks, c = index % chunks;
      alignas(16) T eight[8];
#pragma unroll
      for (int e = 0; e < 8; ++e)
        eight[e] =
            r < live && 8 * c < head_dim ? from[r * row_stride + (8 * c + e) * column_stride] : from_float<T>(0.f);
      *reinterpret_cast<uint4*>(unit + place<Width>(r, c)) = *reinterpret_cast<uint4*>(eight);
    }
  } else if constexpr (32 % chunks == 0) {  // a lane stays in its column
    constexpr int rows = 32 / chunks;
    const int first = lane / chunks, c = lane % chunks;
    const T* source = from + first * row_stride + 8 * c;
#pragma unroll
    for (int r = 0; r < kUnitKeys; r += rows, source += rows * row_stride)
      async_copy::copy16(tensor_core::shared_address(unit + place<Width>(first + r, c)), source,
                         first + r < live && 8 * c < head_dim);
  } else {
#pragma unroll
    for (int i = 0; i < kUnitKeys * chunks / 32; ++i) {
      const int index = lane + 32 * i, r = index / chunks, c = index % chunks;
      async_copy::copy16(tensor_core::shared_address(unit + place<Width>(r, c)), from + r * row_stride + 8 * c,
                         r < live && 8 * c < head_dim);
    }
  }
}

// Whether a unit holds a NaN or an infinity; the same in all lanes.
template <typename T, int Width> __device__ __forceinline__ bool holds_non_finite(const char* unit) {
  constexpr uint32_t kExponent = std::is_same_v<T, __half> ? 0x7c00 : 0x7f80;
  bool found = false;
#pragma unroll 1
  for (int at = threadIdx.x % 32 * 16; at < kUnitKeys * Width * 2; at += 32 * 16) {
    const uint4 eight = *reinterpret_cast<const uint4*>(unit + at);
    for (const uint32_t two : {eight.x, eight.y, eight.z, eight.w})
      found = found || (two & kExponent) == kExponent || (two >> 16 & kExponent) == kExponent;
  }
  return __any_sync(0xffffffffu, found);
}
}  // namespace decode
