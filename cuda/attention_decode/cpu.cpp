// OpenMP over (sequence, KV head, 512 keys); 32 keys at a time are widened to fp32 once for all query heads that read
// them.
//
// An fp8 cache is widened as it is: the scale of K's head goes into the queries, that of V's into the division at the
// end. Rows are the query heads of a KV head times the query tokens. The parts of a sequence are merged in order
// (log-sum-exp), so results do not depend on the number of threads.
#include <algorithm>
#include <cmath>
#include <vector>

#include "../common/cpu_block.h"
#include "../common/cpu_softmax.h"
#include "general.h"

using namespace fusescope_cpu;
using namespace cpu_block;

namespace {
constexpr int kPart = 512, kKeys = 32, kAtOnce = 4, kWidest = 256;

// C: an element of the cache.
template <typename T, typename C> struct Decode {
  static constexpr bool scaled = std::is_same_v<C, E4m3>;
  const AttentionDecodeArgs& a;
  const AttentionDecodeGeneral g = take_general(a);
  const AttentionDecodeBias* const bias = take_bias(a);
  const AttentionDecodeScales scales = scales_of(a);
  const int tokens = g.tokens, rows = a.heads / a.heads_kv * tokens;  // of a KV head: token r % tokens of a head
  const int head_dim = a.head_dim, width = int(padded(a.head_dim));
  const int64_t part_size = int64_t(rows) * (width + 2);  // a part: contexts, then maximum and sum of each row

  int length(int b) const { return std::clamp(a.lengths[b], 0, a.seq_max); }
  // The keys that token t sees are begin ... end - 1, of which some may not be in the cache.
  int end(int b, int t) const { return length(b) - tokens + 1 + t; }
  int begin(int b, int t) const { return g.window ? std::max(0, end(b, t) - g.window) : 0; }
  int parts_of(int b) const { return (std::max(0, length(b) - begin(b, 0)) + kPart - 1) / kPart; }

  // Where key `row` lies, with `run` its number of neighbours from there on; -1: not in the cache.
  int64_t page_of(int b, int row, int& run) const {
    if (!g.block_table) return b;
    run = std::min(run, g.page - row % g.page);
    const int page = g.block_table[b * g.table_row + row / g.page];
    return page >= 0 && page < g.pages ? page : -1;
  }

  // 32 rows of K or V from `row` on as fp32, `step` floats apart: where they lie if they are that already, else in the
  // buffer. Rows beyond `live` are not read.
  const float* widened(const C* from, const int64_t* stride, int live, float* buffer, int64_t& step) const {
    if constexpr (sizeof(C) == 4) {
      if (stride[3] == 1 && head_dim == width) {
        step = stride[2];
        return reinterpret_cast<const float*>(from);
      }
    }
    step = width;
    for (int j = 0; j < live; ++j) {
      const C* row = from + j * stride[2];
      float* to = buffer + j * width;
      if (stride[3] == 1) {
        pack_row(row, to, head_dim, width);
      } else {
        for (int d = 0; d < width; ++d) to[d] = d < head_dim ? to_float(row[d * stride[3]]) : 0.f;
      }
    }
    return buffer;
  }

  // s[j] = q . k[j] for `live` keys, four at a time.
  void scores(const float* q, const float* k, int64_t step, int live, float* s) const {
    int j = 0;
    for (; j + kAtOnce <= live; j += kAtOnce) {
      Block sum[kAtOnce] = {};
      for (int d = 0; d < width; d += SIZE) {
        const Block query = load(q + d);
        for (int n = 0; n < kAtOnce; ++n) sum[n] += query * load(k + (j + n) * step + d);
      }
      for (int n = 0; n < kAtOnce; ++n) s[j + n] = total(sum[n]);
    }
    for (; j < live; ++j) {
      Block sum = {};
      for (int d = 0; d < width; d += SIZE) sum += load(q + d) * load(k + j * step + d);
      s[j] = total(sum);
    }
  }

  // o = o shrink + sum of p[j] v[j], Count vectors of columns at a time.
  template <int Count>
  void add_values(const float* p, const float* v, int64_t step, int live, float shrink, float* o) const {
    Block sum[Count];
    for (int c = 0; c < Count; ++c) sum[c] = load(o + c * SIZE) * shrink;
    for (int j = 0; j < live; ++j)
      for (int c = 0; c < Count; ++c) sum[c] += p[j] * load(v + j * step + c * SIZE);
    for (int c = 0; c < Count; ++c) store(o + c * SIZE, sum[c]);
  }

  float bias_at(int64_t i) const {
    return bias->dtype == FS_FLOAT32 ? static_cast<const float*>(bias->bias)[i]
                                     : to_float(static_cast<const T*>(bias->bias)[i]);
  }

  // Adds to the scores of `count` keys from `key` on what is added to them. Returns which keys the bias masks, as bits.
  uint32_t add_to(float* score, int b, int64_t head, int token, int key, int count) const {
    static_assert(kKeys <= 32);
    if (bias->slopes) {
      const float slope = bias->slopes[head];
      const int distance = key - (end(b, token) - 1);
      for (int j = 0; j < count; ++j) score[j] += slope * float(distance + j);
    }
    uint32_t masked = 0;
    if (bias->bias) {
      const int64_t* stride = bias->stride;
      const int64_t row = b * stride[0] + head * stride[1] + token * stride[2];
      for (int j = 0; j < count; ++j) {
        const float more = bias_at(row + (key + j) * stride[3]);
        score[j] += more;
        masked |= uint32_t(more == kNone) << j;
      }
    }
    return masked;
  }

  // Keys [first, last) of one KV head for all query rows that read it.
  void part(int b, int head_kv, int first, int last, float* to) const {
    alignas(64) float keys[kKeys * kWidest], values[kKeys * kWidest], p[kKeys];
    std::vector<float> query(size_t(rows) * width, 0.f);
    const float scale = scaled ? a.scale * scales.k[head_kv] : a.scale;
    for (int r = 0; r < rows; ++r) {
      const int64_t head = (int64_t(head_kv) * rows + r) / tokens;
      const T* q = static_cast<const T*>(a.q) + b * a.q_stride[0] + head * a.q_stride[1] + r % tokens * g.q_token;
      for (int d = 0; d < head_dim; ++d) query[size_t(r) * width + d] = to_float(q[d * a.q_stride[2]]) * scale;
    }
    float* const statistics = to + int64_t(rows) * width;
    std::fill_n(to, part_size, 0.f);
    for (int r = 0; r < rows; ++r) statistics[2 * r] = kNone;
    for (int row = first, live = 0; row < last; row += live) {
      live = std::min(kKeys, last - row);
      const int64_t page = page_of(b, row, live), inside = g.block_table ? row % g.page : row;
      if (page < 0) continue;
      int64_t k_step, v_step;
      const float* k =
          widened(static_cast<const C*>(a.k) + page * a.k_stride[0] + head_kv * a.k_stride[1] + inside * a.k_stride[2],
                  a.k_stride, live, keys, k_step);
      const float* v =
          widened(static_cast<const C*>(a.v) + page * a.v_stride[0] + head_kv * a.v_stride[1] + inside * a.v_stride[2],
                  a.v_stride, live, values, v_step);
      for (int r = 0; r < rows; ++r) {
        const int from = std::max(0, begin(b, r % tokens) - row),
                  seen = std::min(live, end(b, r % tokens) - row) - from;
        if (seen <= 0) continue;
        scores(query.data() + size_t(r) * width, k + from * k_step, k_step, seen, p);
        for (int j = 0; j < seen && g.softcap > 0.f; ++j) p[j] = g.softcap * std::tanh(p[j] / g.softcap);
        const int64_t head = (int64_t(head_kv) * rows + r) / tokens;
        const uint32_t masked = bias ? add_to(p, b, head, r % tokens, row + from, seen) : 0;
        for (int at = 0, count; at < seen; at += count) {  // runs of keys that are masked, or that are not
          const bool skipped = masked >> at & 1;
          const uint32_t others = (skipped ? ~masked : masked) >> at;
          count = std::min(seen - at, others ? __builtin_ctz(others) : seen);
          if (skipped) continue;
          const float shrink = weigh<fast_exp>(p + at, count, statistics[2 * r], statistics[2 * r + 1]);
          over_columns(width, [&](auto blocks, int64_t d) {
            add_values<decltype(blocks)::value>(p + at, v + (from + at) * v_step + d, v_step, count, shrink,
                                                to + int64_t(r) * width + d);
          });
        }
      }
    }
  }

  // Merges the parts of row r of a KV head.
  void merge(int b, int head_kv, int r, const float* parts, int count) const {
    alignas(64) float o[kWidest] = {};
    float top = kNone, sum = 0.f;
    auto statistics = [&](int n) { return parts + n * part_size + int64_t(rows) * width + 2 * r; };
    for (int n = 0; n < count; ++n) top = std::max(top, statistics(n)[0]);
    const float base = top == kNone ? 0.f : top;
    for (int n = 0; n < count; ++n) {
      const float weight = fast_exp(statistics(n)[0] - base);
      const float* from = parts + n * part_size + int64_t(r) * width;
      sum += weight * statistics(n)[1];
      for (int d = 0; d < head_dim; ++d) o[d] += weight * from[d];
    }
    const int64_t row = int64_t(head_kv) * rows + r;
    if (g.sinks && sum != 0.f) sum += std::exp(g.sinks[row / tokens] - base);
    const float scale = scaled ? scales.v[head_kv] : 1.f;
    T* to = static_cast<T*>(a.out) + (int64_t(b) * a.heads * tokens + row) * head_dim;
    for (int d = 0; d < head_dim; ++d)
      to[d] = from_float<T>(sum == 0.f ? 0.f : scaled ? o[d] / sum * scale : o[d] / sum);
  }

  const char* run() const {
    struct Part {
      int b, head_kv, first;
    };
    std::vector<Part> parts;
    std::vector<int64_t> first_part(size_t(a.batch) +
                                    1);  // of a sequence's first KV head; its heads follow one another
    for (int b = 0; b < a.batch; ++b) {
      first_part[b] = int64_t(parts.size());
      for (int h = 0; h < a.heads_kv; ++h)
        for (int n = 0; n < parts_of(b); ++n) parts.push_back({b, h, begin(b, 0) + n * kPart});
    }
    const int64_t count = int64_t(parts.size());
    const Buffer results = buffer(std::max<int64_t>(1, count * part_size));
    if (!results) return "out of memory for the parts of the sequences";
#pragma omp parallel for schedule(dynamic) if (count > 1)
    for (int64_t i = 0; i < count; ++i) {
      const Part& p = parts[i];
      part(p.b, p.head_kv, p.first, std::min(length(p.b), p.first + kPart), results.get() + i * part_size);
    }
    const int64_t all = int64_t(a.batch) * a.heads_kv * rows;
#pragma omp parallel for schedule(static) if (all > 64)
    for (int64_t i = 0; i < all; ++i) {
      const int b = int(i / (int64_t(a.heads_kv) * rows)), head_kv = int(i / rows % a.heads_kv);
      merge(b, head_kv, int(i % rows), results.get() + (first_part[b] + int64_t(head_kv) * parts_of(b)) * part_size,
            parts_of(b));
    }
    return nullptr;
  }
};
}  // namespace

FUSESCOPE_KERNEL(const AttentionDecodeArgs* args, void*) {
  return dispatch(args->dtype & ~kE4m3Cache, [&](auto zero) {
    using T = decltype(zero);
    return args->dtype & kE4m3Cache ? Decode<T, E4m3>{*args}.run() : Decode<T, T>{*args}.run();
  });
}
