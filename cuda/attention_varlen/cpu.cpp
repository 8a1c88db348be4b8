// OpenMP over (sequence, head, 64 query rows); K transposed and V widened a tile of 64 keys at a time, products in
// register blocks.
#include <algorithm>
#include <vector>

#include "../attention/cpu_tiles.h"
#include "attention_varlen.cuh"

using namespace fusescope_cpu;
using namespace cpu_tiles;

namespace {
constexpr int kBlocks = kTile / SIZE, kWidest = 256;

// s[r][j] = sum over d of q[r][d] kt[d][j] for kRows rows and 64 keys.
void scores(const float* q, const float* kt, float* s, int head_dim, int width) {
  Block sum[kRows][kBlocks] = {};
  for (int d = 0; d < head_dim; ++d) {
    Block keys[kBlocks];
    for (int c = 0; c < kBlocks; ++c) keys[c] = load(kt + d * kTile + c * SIZE);
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < kBlocks; ++c) sum[r][c] += q[r * width + d] * keys[c];
  }
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kBlocks; ++c) store(s + r * kTile + c * SIZE, sum[r][c]);
}

template <typename T> struct Varlen {
  const AttentionVarlenArgs& a;
  const int head_dim = a.head_dim, width = int(padded(a.head_dim));

  struct Task {
    int q_first, queries, k_first, keys, row, head;
  };

  static int start_of(const int32_t* cu, int b, int batch, int total) {
    return b == 0 ? 0 : b > batch ? total : std::clamp(cu[b], 0, total);
  }

  // Rows of one head from `row` on as fp32: Transposed, element (j, d) at [d][j] of 64, else at [j][d] of `width`;
  // zeros beyond.
  template <bool Transposed>
  void pack(const void* base, const int64_t* stride, int64_t row, int head, int rows, float factor, float* to) const {
    const T* from = static_cast<const T*>(base) + row * stride[0] + head * stride[1];
    std::fill_n(to, kTile * (Transposed ? head_dim : width), 0.f);
    for (int j = 0; j < rows; ++j)
      for (int d = 0; d < head_dim; ++d)
        to[Transposed ? d * kTile + j : j * width + d] = to_float(from[j * stride[0] + d * stride[2]]) * factor;
  }

  void run_task(const Task& t) const {
    alignas(64) static thread_local float q[kTile * kWidest], kt[kTile * kWidest], v[kTile * kWidest],
        o[kTile * kWidest];
    alignas(64) float s[kRows * kTile];
    float maximum[kTile], sum[kTile];
    const int rows = std::min(kTile, t.queries - t.row), head_kv = t.head / (a.heads / a.heads_kv);
    auto seen = [&](int r) { return a.causal ? std::min(t.keys, t.row + r + t.keys - t.queries + 1) : t.keys; };
    pack<false>(a.q, a.q_stride, t.q_first + t.row, t.head, rows, a.scale, q);
    std::fill_n(o, kTile * width, 0.f);
    std::fill_n(maximum, kTile, kNone);
    std::fill_n(sum, kTile, 0.f);
    for (int first = 0; first < seen(rows - 1); first += kTile) {
      const int live = std::min(kTile, t.keys - first);
      pack<true>(a.k, a.k_stride, int64_t(t.k_first) + first, head_kv, live, 1.f, kt);
      pack<false>(a.v, a.v_stride, int64_t(t.k_first) + first, head_kv, live, 1.f, v);
      for (int r = 0; r < rows; r += kRows) {
        if (seen(std::min(r + kRows, rows) - 1) <= first) continue;  // the last of the four rows sees most
        scores(q + r * width, kt, s, head_dim, width);
        float shrink[kRows];
        for (int n = 0; n < kRows; ++n) {
          float* const p = s + n * kTile;
          const int upto = std::clamp(seen(r + n) - first, 0, live);
          for (int j = upto; j < kTile; ++j) p[j] = kNone;
          shrink[n] = weigh<fast_exp>(p, kTile, maximum[r + n], sum[r + n]);
        }
        over_columns(width, [&](auto blocks, int64_t d) {
          add_values<decltype(blocks)::value>(s, v + d, o + r * width + d, shrink, 0, live, width);
        });
      }
    }
    for (int r = 0; r < rows; ++r) {
      const float inverse = sum[r] == 0.f ? 0.f : 1.f / sum[r];  // a row without a key is zeros
      T* to = static_cast<T*>(a.out) + (int64_t(t.q_first + t.row + r) * a.heads + t.head) * head_dim;
      for (int d = 0; d < head_dim; ++d) to[d] = from_float<T>(o[r * width + d] * inverse);
    }
  }

  const char* run() const {
    std::vector<Task> tasks;
    for (int b = 0; b <= a.batch; ++b) {  // the rows after the last sequence count as one more, without keys
      const int q_first = start_of(a.cu_q, b, a.batch, a.total_q),
                queries = start_of(a.cu_q, b + 1, a.batch, a.total_q) - q_first;
      const int k_first = b < a.batch ? start_of(a.cu_k, b, a.batch, a.total_k) : 0;
      const int keys = b < a.batch ? std::max(0, start_of(a.cu_k, b + 1, a.batch, a.total_k) - k_first) : 0;
      for (int head = 0; head < a.heads; ++head)
        for (int row = 0; row < queries; row += kTile) tasks.push_back({q_first, queries, k_first, keys, row, head});
    }
    const int64_t count = int64_t(tasks.size());
#pragma omp parallel for schedule(dynamic) if (count > 1)
    for (int64_t i = 0; i < count; ++i) run_task(tasks[i]);
    return nullptr;
  }
};
}  // namespace

FUSESCOPE_KERNEL(const AttentionVarlenArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) { return Varlen<decltype(zero)>{*args}.run(); });
}
