// The same arithmetic on a CPU: tiles of e4m3, scores and context in fp32, weights rounded to e4m3. OpenMP over (head,
// query tile).
//
// As in attention/cpu.cpp, four rows at a time against 64 keys in vector registers; a head's quantised keys and values
// are widened to fp32 once.
#include <algorithm>
#include <cmath>
#include <vector>

#include "../attention/cpu_tiles.h"
#include "../common/e4m3.h"
#include "cpu_quantise.h"

using namespace fusescope_cpu;
using namespace cpu_tiles;

namespace {
using namespace fp8;

constexpr int kSide = FP8_TILE;

// A head's keys as tiles [column][64 keys], its values as [key][D], both as they were before they were quantised, less
// the scales of v's columns.
struct Widened {
  std::vector<float> keys, values;
};

template <int D> Widened widen(const AttentionFp8Args& a, int64_t kv) {
  const int k_tiles = (a.seq_k + kSide - 1) / kSide;
  Widened to{std::vector<float>(size_t(k_tiles) * kSide * D), std::vector<float>(size_t(k_tiles) * kSide * D)};
  for (int t = 0; t < k_tiles; ++t) {
    const int64_t at = (kv * k_tiles + t) * kSide * D;
    const float scale = a.k_scale[kv * k_tiles + t];
    for (int key = 0; key < kSide; ++key)
      for (int c = 0; c < D; ++c) {
        to.keys[(size_t(t) * D + c) * kSide + key] = to_float(E4m3{a.k8[at + row_byte<D>(key, c)]}) * scale;
        to.values[(size_t(t) * kSide + key) * D + c] = to_float(E4m3{a.v8[at + value_byte(c, key)]});
      }
  }
  return to;
}

// Weights to e4m3 and back, relative to 2^-kTop of the row's maximum; their sum.
struct Row {
  float reference = -INFINITY, sum = 0.f;
};

template <typename T, int D> struct Attend {
  static constexpr float kTop = 4.f;  // the maximum's weight is 2^kTop (step.cuh)
  const AttentionFp8Args& a;
  const int q_tiles = (a.seq_q + kSide - 1) / kSide, k_tiles = (a.seq_k + kSide - 1) / kSide;

  // Keys of tile `kt`, of code `code`, that a row sees.
  uint64_t live(int row, int kt, int code) const {
    const int end = a.causal ? std::min(a.seq_k, row + a.seq_k - a.seq_q + 1) : a.seq_k, keys = end - kt * kSide;
    const uint64_t edge = keys >= kSide ? ~uint64_t(0) : keys <= 0 ? 0 : (uint64_t(1) << keys) - 1;
    return code < 0 ? edge : edge & a.bitmaps[int64_t(code) * kSide + row % kSide];
  }

  // One row of scores in s, in powers of two, to weights; the context is multiplied by what is returned.
  float weigh(float* s, uint64_t word, Row& row) const {
    float top = -INFINITY;
    for (int j = 0; j < kSide; ++j) {
      if (!(word >> j & 1)) s[j] = -INFINITY;
      if (s[j] > top) top = s[j];
    }
    float shrink = 1.f;
    if (top - kTop > row.reference) {
      shrink = row.reference == -INFINITY ? 0.f : std::exp2(row.reference - (top - kTop));
      row.reference = top - kTop;
      row.sum *= shrink;
    }
    const float reference = row.reference == -INFINITY ? 0.f : row.reference;
    for (int j = 0; j < kSide; ++j) {
      s[j] = s[j] == -INFINITY ? 0.f : to_float(e4m3_of(std::exp2(s[j] - reference)));
      row.sum += s[j];
    }
    return shrink;
  }

  void tile(int64_t head, int t, const Widened& kv) const {
    const int b = int(head / a.heads), h = int(head % a.heads);
    alignas(64) float q[kSide * D], o[kSide * D] = {}, s[kRows * kSide];
    Row rows[kSide];
    const int64_t at = (head * q_tiles + t) * kSide * D;
    const float factor = a.q_scale[head * q_tiles + t] * a.scale * float(M_LOG2E);
    for (int r = 0; r < kSide; ++r)
      for (int c = 0; c < D; ++c) q[r * D + c] = to_float(E4m3{a.q8[at + row_byte<D>(r, c)]}) * factor;
    const int count = std::min(kSide, a.seq_q - t * kSide);
    const int64_t list = int64_t(b * a.mask_stride_b + h * a.mask_stride_h) * q_tiles + t;
    const int begin = a.row_ptr ? a.row_ptr[list] : 0, end = a.row_ptr ? a.row_ptr[list + 1] : k_tiles;
    for (int i = begin; i < end; ++i) {
      const int kt = a.row_ptr ? a.tile_index[i] : i, code = a.row_ptr ? a.tile_code[i] : -1;
      for (int r = 0; r < count; r += kRows) {
        uint64_t word[kRows] = {}, any = 0;
        for (int n = 0; n < kRows; ++n)
          if (r + n < count) any |= word[n] = live(t * kSide + r + n, kt, code);
        if (!any) continue;
        score_blocks<kSide / SIZE>(q + r * D, kv.keys.data() + size_t(kt) * D * kSide, s, D, D);
        for (int n = 0; n < kRows; ++n) {
          const float shrink = weigh(s + n * kSide, word[n], rows[r + n]);
          float* const to = o + (r + n) * D;
          if (shrink != 1.f)
            for (int c = 0; c < D; ++c) to[c] *= shrink;
          for (int j = 0; j < kSide; ++j) {
            const float weight = s[n * kSide + j];
            if (weight == 0.f) continue;
            const float* const v = kv.values.data() + (size_t(kt) * kSide + j) * D;
            for (int c = 0; c < D; ++c) to[c] += weight * v[c];
          }
        }
      }
    }
    const float* const scales = a.v_scale + (int64_t(b) * a.heads_kv + h / (a.heads / a.heads_kv)) * D;
    T* const out =
        static_cast<T*>(a.out) + b * a.out_stride[0] + h * a.out_stride[1] + int64_t(t) * kSide * a.out_stride[2];
    for (int r = 0; r < count; ++r) {
      const float inverse = rows[r].sum == 0.f ? 0.f : 1.f / rows[r].sum;  // rows without a live key are zeros
      for (int c = 0; c < D; ++c) out[r * a.out_stride[2] + c] = from_float<T>(o[r * D + c] * inverse * scales[c]);
    }
  }

  const char* run() const {
    const int64_t group = a.heads / a.heads_kv, heads = int64_t(a.batch) * a.heads_kv;
    for (int64_t kv = 0; kv < heads; ++kv) {
      const Widened widened = widen<D>(a, kv);
#pragma omp parallel for schedule(dynamic)
      for (int64_t i = 0; i < group * q_tiles; ++i)
        tile(kv * group + i / q_tiles, int(q_tiles - 1 - i % q_tiles), widened);
    }
    return nullptr;
  }
};

template <typename T, int D> const char* run(const AttentionFp8Args& args) {
  if (args.phase == FP8_ATTEND) return Attend<T, D>{args}.run();
  return cpu_quantise::Quantise<T, D>{args}.run();
}
template <typename T> const char* with_columns(const AttentionFp8Args& args) {
  return args.head_dim == 64 ? run<T, 64>(args) : run<T, 128>(args);
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionFp8Args* args, void*) {
  return args->dtype == FS_FLOAT16 ? with_columns<Half>(*args) : with_columns<BFloat16>(*args);
}
