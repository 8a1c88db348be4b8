// Quantising on a CPU, tile by tile, OpenMP over tiles.
#pragma once
#include <algorithm>
#include <vector>

#include "../common/cpu.h"
#include "../common/e4m3.h"
#include "rotation.h"
#include "tiles.h"

namespace cpu_quantise {
using namespace fp8;
using fusescope_cpu::to_float;

// The least power of two that brings `most` to at most 448.
inline float scale_of(float most) {
  int exponent = 0;
  const float fraction = std::frexp(most / kLargest, &exponent);
  return std::ldexp(1.f, std::max(fraction == 0.5f || fraction == 0.f ? exponent - 1 : exponent, -60));
}
inline float finite_size(float x) { return std::isfinite(x) ? std::fabs(x) : 0.f; }

template <typename T, int D> struct Quantise {
  const AttentionFp8Args& a;

  static void rotate(float* x) {
    for (int c = 0; c < D; ++c) x[c] *= sign_of_column(c) * norm_of<D>();
    for (int distance = 1; distance < D; distance <<= 1)
      for (int c = 0; c < D; ++c) {
        if (c & distance) continue;
        const float low = x[c], high = x[c | distance];
        x[c] = low + high, x[c | distance] = low - high;
      }
  }

  static void read(float* to, const void* base, const int64_t (&stride)[4], int64_t b, int64_t h, int64_t row) {
    const T* const from = static_cast<const T*>(base) + b * stride[0] + h * stride[1] + row * stride[2];
    for (int c = 0; c < D; ++c) to[c] = to_float(from[c * stride[3]]);
  }

  // A tile of q or k from row `first` on; lost: of each row whether it is to be NaN.
  void rows(const void* base, const int64_t (&stride)[4], int64_t b, int64_t h, int first, int seq, const bool* lost,
            uint8_t* to, float* scale) const {
    float x[FP8_TILE][D] = {}, most = 0.f;
    for (int r = 0; r < std::min<int>(FP8_TILE, seq - first); ++r) {
      read(x[r], base, stride, b, h, first + r);
      if (a.rotate) rotate(x[r]);
      for (float value : x[r]) most = std::max(most, finite_size(value));
    }
    *scale = scale_of(most);
    for (int r = 0; r < FP8_TILE; ++r)
      for (int c = 0; c < D; ++c)
        to[row_byte<D>(r, c)] = std::isfinite(x[r][c]) && !lost[r] ? e4m3_of(x[r][c] / *scale).bits : 0x7f;
  }

  const char* run() const {
    const int q_tiles = (a.seq_q + FP8_TILE - 1) / FP8_TILE, k_tiles = (a.seq_k + FP8_TILE - 1) / FP8_TILE;
    const int64_t queries = int64_t(a.batch) * a.heads, kv = int64_t(a.batch) * a.heads_kv;
    constexpr int64_t kBytes = FP8_TILE * D;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < queries * q_tiles; ++i) {
      const bool lost[FP8_TILE] = {};
      const int64_t head = i / q_tiles;
      rows(a.q, a.q_stride, head / a.heads, head % a.heads, int(i % q_tiles) * FP8_TILE, a.seq_q, lost,
           a.q8 + i * kBytes, a.q_scale + i);
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < kv; ++i) {
      float most[D] = {}, x[D];
      for (int key = 0; key < a.seq_k; ++key) {
        read(x, a.v, a.v_stride, i / a.heads_kv, i % a.heads_kv, key);
        for (int c = 0; c < D; ++c) most[c] = std::max(most[c], finite_size(x[c]));
      }
      for (int c = 0; c < D; ++c) a.v_scale[i * D + c] = scale_of(most[c]);
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < kv * k_tiles; ++i) {
      const int64_t head = i / k_tiles, b = head / a.heads_kv, h = head % a.heads_kv;
      const int first = int(i % k_tiles) * FP8_TILE;
      bool lost[FP8_TILE] = {};
      uint8_t* const v8 = a.v8 + i * kBytes;
      for (int key = 0; key < FP8_TILE; ++key) {
        float x[D] = {};
        if (first + key < a.seq_k) read(x, a.v, a.v_stride, b, h, first + key);
        for (float value : x) lost[key] = lost[key] || !std::isfinite(value);
        for (int c = 0; c < D; ++c)
          v8[value_byte(c, key)] = lost[key] ? 0 : e4m3_of(x[c] / a.v_scale[head * D + c]).bits;
      }
      rows(a.k, a.k_stride, b, h, first, a.seq_k, lost, a.k8 + i * kBytes, a.k_scale + i);
    }
    return nullptr;
  }
};

}  // namespace cpu_quantise
