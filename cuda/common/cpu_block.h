// Sixteen floats at a time for CPU kernels over rows: vectors, their sum, and rows packed to fp32 with a padded width.
#pragma once
#include <cstdlib>
#include <cstring>
#include <memory>

#include "cpu.h"

namespace cpu_block {
using fusescope_cpu::to_float;

constexpr int SIZE = 16;
typedef float Block __attribute__((vector_size(64)));  // split by the compiler into what the machine has

inline Block load(const float* p) {
  Block x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
inline void store(float* p, Block x) { std::memcpy(p, &x, sizeof x); }

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

}  // namespace cpu_block
