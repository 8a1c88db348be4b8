// Packs of a row as they lie in memory. A conversion waits for its load, so a kernel that wants several loads in flight
// reads all of them like this first and converts then.
#pragma once
#include <string.h>

#include "launch.cuh"

namespace row {

// Width neighbouring elements, read and written in one access: 16 bytes, or one element.
template <typename T, int Width> struct alignas(sizeof(T) * Width) Raw {
  // Words: the compiler would keep each element of 16 bits in a register of its own.
  using Word = std::conditional_t<(sizeof(T) * Width >= 4), uint32_t, uint16_t>;
  static constexpr int PER_WORD = int(sizeof(Word) / sizeof(T));
  Word word[Width / PER_WORD];

  __device__ __forceinline__ void read(const T* from) { *this = *reinterpret_cast<const Raw*>(from); }
  // Zeros where not inside.
  __device__ __forceinline__ void read(const T* from, bool inside) {
#pragma unroll
    for (Word& w : word) w = 0;
    if (inside) read(from);
  }
  __device__ __forceinline__ float operator[](int e) const {
    T element[PER_WORD];
    memcpy(element, word + e / PER_WORD, sizeof(Word));
    return to_float(element[e % PER_WORD]);
  }
};

// The same to be written, converted element by element.
template <typename T, int Width> struct alignas(sizeof(T) * Width) Rounded {
  T value[Width];

  __device__ __forceinline__ void set(int e, float v) { value[e] = from_float<T>(v); }
  __device__ __forceinline__ void write(T* to) const { *reinterpret_cast<Rounded*>(to) = *this; }
};

}  // namespace row
