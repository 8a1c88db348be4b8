// Sixteen floats at a time for CPU kernels over rows: vectors, their sum, and rows packed to fp32 with a padded width.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>

#include "cpu.h"

namespace cpu_block {
using fusescope_cpu::to_float;

constexpr int SIZE = 16;
#if defined(__AVX512F__)
typedef float Block __attribute__((vector_size(64)));
constexpr int FOUR_ROWS = 4;  // blocks of each of four rows whose sums stay in registers

inline Block load(const float* p) {
  Block x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
inline void store(float* p, Block x) { std::memcpy(p, &x, sizeof x); }
#else
// Two registers, read and written one by one. A vector or a copy of 64 bytes goes through memory at each operation:
// most of the time of attention went there.
typedef float Register __attribute__((vector_size(32)));
typedef float Anywhere __attribute__((vector_size(32), aligned(4), may_alias));
struct Block {
  Register low, high;
};
constexpr int FOUR_ROWS = 1;

inline Block load(const float* p) {
  return {*reinterpret_cast<const Anywhere*>(p), *reinterpret_cast<const Anywhere*>(p + 8)};
}
inline void store(float* p, Block x) {
  *reinterpret_cast<Anywhere*>(p) = x.low;
  *reinterpret_cast<Anywhere*>(p + 8) = x.high;
}
inline Block operator+(Block x, Block y) { return {x.low + y.low, x.high + y.high}; }
inline Block operator*(Block x, Block y) { return {x.low * y.low, x.high * y.high}; }
inline Block operator*(Block x, float y) { return {x.low * y, x.high * y}; }
inline Block operator*(float x, Block y) { return y * x; }
inline Block& operator+=(Block& x, Block y) {
  x.low += y.low, x.high += y.high;
  return x;
}
#endif

inline float total(Block x) {
  typedef float Eight __attribute__((vector_size(32)));
  typedef float Four __attribute__((vector_size(16)));
  Eight e[2];
  std::memcpy(e, &x, sizeof x);
  e[0] += e[1];
  Four f[2];
  std::memcpy(f, e, sizeof f);
  f[0] += f[1];
  return (f[0][0] + f[0][1]) + (f[0][2] + f[0][3]);
}

// f(an integral constant: min(blocks, 4)), for loops whose accumulators stay in registers.
template <typename F> inline void with_blocks(int64_t blocks, F f) {
  switch (blocks) {
    case 1:
      return f(std::integral_constant<int, 1>{});
    case 2:
      return f(std::integral_constant<int, 2>{});
    case 3:
      return f(std::integral_constant<int, 3>{});
    default:
      return f(std::integral_constant<int, 4>{});
  }
}
// f(that constant, first column) over the columns of rows of `width` floats.
template <typename F> inline void over_columns(int64_t width, F f) {
  for (int64_t d = 0; d < width; d += 4 * SIZE) with_blocks((width - d) / SIZE, [&](auto count) { f(count, d); });
}

struct Free {
  void operator()(float* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<float, Free>;
inline Buffer buffer(int64_t floats) {
  return Buffer(static_cast<float*>(std::aligned_alloc(64, size_t((floats * 4 + 64) / 64 * 64))));
}

inline int64_t padded(int64_t n) { return (n + SIZE - 1) / SIZE * SIZE; }

// One row of n elements as fp32, zeros up to `width`.
template <typename T> inline void pack_row(const T* from, float* to, int64_t n, int64_t width) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = to_float(from[i]);
  for (int64_t i = n; i < width; ++i) to[i] = 0.0f;
}

// The rows of K or V of several heads as fp32 with `width` floats each: in place if they are that already, else
// packed, as many heads a round as fit into a bounded buffer. head: outer = head / inner, inner = head % inner; step:
// outer, inner, row.
template <typename T> struct HeadRows {
  static constexpr int64_t MOST = int64_t(64) << 20;  // floats packed at once: 256 MiB
  const T* base;
  const int64_t* step;
  int64_t heads, inner, rows, depth;
  int64_t width = padded(depth);
  bool direct = sizeof(T) == 4 && depth == width;
  int64_t round = direct ? heads : std::min(heads, std::max<int64_t>(1, MOST / (rows * width)));
  int64_t distance = direct ? step[2] : width;  // floats between rows
  Buffer packed = direct ? Buffer() : buffer(round * rows * width);

  bool good() const { return direct || packed; }
  const T* source(int64_t head) const { return base + head / inner * step[0] + head % inner * step[1]; }
  // Row i % rows of head first + i / rows; called for all i of a round before its rows are read.
  void pack(int64_t first, int64_t i) const {
    pack_row(source(first + i / rows) + i % rows * step[2], packed.get() + i * width, depth, width);
  }
  const float* of(int64_t first, int64_t head) const {
    if constexpr (sizeof(T) == 4) {
      if (direct) return reinterpret_cast<const float*>(source(head));
    }
    return packed.get() + (head - first) * rows * width;
  }
};

}  // namespace cpu_block
