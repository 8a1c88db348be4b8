// A row as fp32 in the registers of a warp or a block: read once, written once, whatever is computed in between.
#pragma once
#include <type_traits>

#include "device.cuh"
#include "launch.cuh"

namespace row {

template <typename T> struct alignas(16) Pack {
  T value[16 / sizeof(T)];
};

// A row of up to Threads * Each elements over a group of Threads threads, Each per thread. Wide: 16-byte accesses, for
// rows that begin at multiples of 16 bytes and have whole packs; neighbouring threads then have neighbouring packs,
// else neighbouring elements. `each` skips elements beyond the row.
template <typename T, int Threads, int Each, bool Wide> struct Registers {
  static constexpr int Group = Threads, Width = Wide ? 16 / int(sizeof(T)) : 1, Packs = Each / Width;
  static_assert(Each % Width == 0, "whole packs");

  float value[Each];
  int lane, cols;  // this thread's place in its group; elements of the row

  __device__ __forceinline__ Registers(int lane, int cols) : lane(lane), cols(cols) {}

  // Calls f(this thread's copy of it) for every element of the row that this thread has.
  template <typename F> __device__ __forceinline__ void each(F f) {
    each_pack([&](int, float* v) {
#pragma unroll
      for (int e = 0; e < Width; ++e) f(v[e]);
    });
  }

  // Calls f(place of the pack's first element, pointer to this thread's copy) for every pack of Width elements of the
  // row.
  template <typename F> __device__ __forceinline__ void each_pack(F f) {
#pragma unroll
    for (int p = 0; p < Packs; ++p) {
      const int first = (p * Threads + lane) * Width;
      if (first < cols) f(first, value + p * Width);
    }
  }

  __device__ __forceinline__ void load(const T* from) {
    each_pack([&](int first, float* v) { read_pack(from + first, v); });
  }

  __device__ __forceinline__ void store(T* to) {
    each_pack([&](int first, const float* v) { write_pack(to + first, v); });
  }

  static __device__ __forceinline__ void read_pack(const T* from, float* to) {
    if constexpr (Wide) {
      const Pack<T> pack = *reinterpret_cast<const Pack<T>*>(from);
#pragma unroll
      for (int e = 0; e < Width; ++e) to[e] = to_float(pack.value[e]);
    } else {
      *to = to_float(*from);
    }
  }

  static __device__ __forceinline__ void write_pack(T* to, const float* from) {
    if constexpr (Wide) {
      Pack<T> pack;
#pragma unroll
      for (int e = 0; e < Width; ++e) pack.value[e] = from_float<T>(from[e]);
      *reinterpret_cast<Pack<T>*>(to) = pack;
    } else {
      *to = from_float<T>(*from);
    }
  }
};

// A block has one row, or (Threads = 32) a row for each of its four warps.
template <int Threads> constexpr int ROWS = Threads == 32 ? 4 : 1;

constexpr int64_t MOST_IN_REGISTERS = 1024 * 32;  // elements of the longest row that fits one block
constexpr int64_t MOST_BLOCKS = INT32_MAX;

// Threads a row and elements a thread for rows of `cols` (at most MOST_IN_REGISTERS): body(threads, each) with integral
// constants.
template <typename Body> const char* by_length(int64_t cols, Body body) {
  using std::integral_constant;
  if (cols <= 256) return body(integral_constant<int, 32>{}, integral_constant<int, 8>{});
  if (cols <= 512) return body(integral_constant<int, 32>{}, integral_constant<int, 16>{});
  if (cols <= 1024) return body(integral_constant<int, 32>{}, integral_constant<int, 32>{});
  if (cols <= 2048) return body(integral_constant<int, 256>{}, integral_constant<int, 8>{});
  if (cols <= 4096) return body(integral_constant<int, 256>{}, integral_constant<int, 16>{});
  if (cols <= 8192) return body(integral_constant<int, 256>{}, integral_constant<int, 32>{});
  if (cols <= 16384) return body(integral_constant<int, 512>{}, integral_constant<int, 32>{});
  return body(integral_constant<int, 1024>{}, integral_constant<int, 32>{});
}

// Whether rows of x and out may be accessed 16 bytes at a time: both begin at multiples of 16 bytes and consist of
// whole packs.
template <typename T> bool wide_rows(const void* x, int64_t x_row, const void* out, int64_t cols) {
  constexpr int width = 16 / sizeof(T);
  return aligned(x, 16) && aligned(out, 16) && cols % width == 0 && x_row % width == 0;
}

}  // namespace row
