// OpenMP over (sequence, head, 64 query rows); K transposed and V widened a tile of 64 keys at a time, products in
// register blocks.
#include <algorithm>
#include <vector>

#include "../attention/cpu_tiles.h"
#include "attention_varlen.cuh"

using namespace fusescope_cpu;
using namespace cpu_tiles;

namespace {
template <typename T> struct Varlen {
  const AttentionVarlenArgs& a;
  const int left, right;  // of the window
  const int head_dim = a.head_dim, width = int(padded(a.head_dim));

  struct Task {
    int q_first, queries, k_first, keys, row, head;
  };

  static int start_of(const int32_t* cu, int b, int batch, int total) {
    return b == 0 ? 0 : b > batch ? total : std::clamp(cu[b], 0, total);
  }

  // Rows of one head from `row` on.
  Rows<T> rows_of(const void* base, const int64_t* stride, int64_t row, int head, int rows) const {
    return {static_cast<const T*>(base) + row * stride[0] + head * stride[1], stride[0], stride[2], rows};
  }

  void run_task(const Task& t) const {
    alignas(64) static thread_local float q[kTile * kWidest], keys[kTile * kWidest], v[kTile * kWidest],
        o[kTile * kWidest];
    alignas(64) float s[kRows * kTile];
    float maximum[kTile], sum[kTile];
    const int rows = std::min(kTile, t.queries - t.row), head_kv = t.head / (a.heads / a.heads_kv);
    const int position = t.row + t.keys - t.queries;  // of row 0; the keys from(r) ... seen(r) - 1 are row r's
    auto from = [&](int r) { return std::max(0, position + r - left); };
    auto seen = [&](int r) { return std::min(t.keys, position + r + right + 1); };
    pack_rows(rows_of(a.q, a.q_stride, int64_t(t.q_first) + t.row, t.head, rows), kUnchanged, head_dim, width, a.scale,
              q);
    std::fill_n(o, kTile * width, 0.f);
    std::fill_n(maximum, kTile, kNone);
    std::fill_n(sum, kTile, 0.f);
    for (int first = from(0) / kTile * kTile; first < seen(rows - 1); first += kTile) {
      const int live = std::min(kTile, t.keys - first);
      const int64_t row = int64_t(t.k_first) + first;
      pack_columns(rows_of(a.k, a.k_stride, row, head_kv, live), kUnchanged, head_dim, keys);
      pack_rows(rows_of(a.v, a.v_stride, row, head_kv, live), kUnchanged, head_dim, width, 1.f, v);
      const bool finite = all_finite(v, width);
      for (int r = 0; r < rows; r += kRows) {
        // Of the four rows the keys of the first begin first, those of the last end last.
        if (seen(std::min(r + kRows, rows) - 1) <= first || from(r) >= first + live) continue;
        score_blocks<kTile / SIZE>(q + r * width, keys, s, head_dim, width);
        for (int n = 0; n < kRows; ++n) {
          for (int j = 0, end = std::min(from(r + n) - first, live); j < end; ++j) s[n * kTile + j] = kNone;
          for (int j = std::clamp(seen(r + n) - first, 0, live); j < live; ++j) s[n * kTile + j] = kNone;
        }
        attend_tile<exp_negative>(s, 0, live, v, finite, o + r * width, maximum + r, sum + r, width);
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
  const auto& call = *reinterpret_cast<const AttentionVarlenCall*>(args);
  if (call.taken) *call.taken = true;
  const int left = call.taken ? call.left : args->total_k;
  const int right = call.taken ? call.right : args->causal ? 0 : args->total_q;
  return dispatch(args->dtype, [&](auto zero) { return Varlen<decltype(zero)>{*args, left, right}.run(); });
}
