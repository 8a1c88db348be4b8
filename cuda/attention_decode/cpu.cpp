// OpenMP over (sequence, KV head, 512 keys); 32 keys at a time are widened to fp32 once for all query heads that read
// them.
//
// The parts of a sequence are merged in order (log-sum-exp), so results do not depend on the number of threads.
#include <algorithm>
#include <vector>

#include "../common/cpu_block.h"
#include "../common/cpu_softmax.h"
#include "attention_decode.cuh"

using namespace fusescope_cpu;
using namespace cpu_block;

namespace {
constexpr int kPart = 512, kKeys = 32, kAtOnce = 4, kWidest = 256;

template <typename T> struct Decode {
  const AttentionDecodeArgs& a;
  const int group = a.heads / a.heads_kv, head_dim = a.head_dim, width = int(padded(a.head_dim));
  const int64_t part_size = int64_t(group) * (width + 2);  // a part: contexts, then maximum and sum of each query head

  int length(int b) const { return std::clamp(a.lengths[b], 0, a.seq_max); }

  // 32 rows of K or V from `row` on as fp32, `step` floats apart: where they lie if they are that already, else in the
  // buffer. Rows beyond `live` are not read.
  const float* widened(const T* from, const int64_t* stride, int live, float* buffer, int64_t& step) const {
    if constexpr (sizeof(T) == 4) {
      if (stride[3] == 1 && head_dim == width) {
        step = stride[2];
        return reinterpret_cast<const float*>(from);
      }
    }
    step = width;
    for (int j = 0; j < live; ++j) {
      const T* row = from + j * stride[2];
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

  // Keys [first, last) of one KV head for all query heads that read it.
  void part(int b, int head_kv, int first, int last, float* to) const {
    alignas(64) float keys[kKeys * kWidest], values[kKeys * kWidest], p[kKeys];
    std::vector<float> query(size_t(group) * width, 0.f);
    for (int r = 0; r < group; ++r) {
      const T* q = static_cast<const T*>(a.q) + b * a.q_stride[0] + int64_t(head_kv * group + r) * a.q_stride[1];
      for (int d = 0; d < head_dim; ++d) query[size_t(r) * width + d] = to_float(q[d * a.q_stride[2]]) * a.scale;
    }
    float* const statistics = to + int64_t(group) * width;
    std::fill_n(to, part_size, 0.f);
    for (int r = 0; r < group; ++r) statistics[2 * r] = kNone;
    for (int row = first; row < last; row += kKeys) {
      const int live = std::min(kKeys, last - row);
      int64_t k_step, v_step;
      const float* k =
          widened(static_cast<const T*>(a.k) + b * a.k_stride[0] + head_kv * a.k_stride[1] + row * a.k_stride[2],
                  a.k_stride, live, keys, k_step);
      const float* v =
          widened(static_cast<const T*>(a.v) + b * a.v_stride[0] + head_kv * a.v_stride[1] + row * a.v_stride[2],
                  a.v_stride, live, values, v_step);
      for (int r = 0; r < group; ++r) {
        scores(query.data() + size_t(r) * width, k, k_step, live, p);
        const float shrink = weigh<fast_exp>(p, live, statistics[2 * r], statistics[2 * r + 1]);
        over_columns(width, [&](auto blocks, int64_t d) {
          add_values<decltype(blocks)::value>(p, v + d, v_step, live, shrink, to + int64_t(r) * width + d);
        });
      }
    }
  }

  // Merges the parts of one query head.
  void merge(int b, int head, const float* parts, int count) const {
    alignas(64) float o[kWidest] = {};
    const int r = head % group;
    float top = kNone, sum = 0.f;
    auto statistics = [&](int n) { return parts + n * part_size + int64_t(group) * width + 2 * r; };
    for (int n = 0; n < count; ++n) top = std::max(top, statistics(n)[0]);
    const float base = top == kNone ? 0.f : top;
    for (int n = 0; n < count; ++n) {
      const float weight = fast_exp(statistics(n)[0] - base);
      const float* from = parts + n * part_size + int64_t(r) * width;
      sum += weight * statistics(n)[1];
      for (int d = 0; d < head_dim; ++d) o[d] += weight * from[d];
    }
    T* to = static_cast<T*>(a.out) + (int64_t(b) * a.heads + head) * head_dim;
    for (int d = 0; d < head_dim; ++d) to[d] = from_float<T>(sum == 0.f ? 0.f : o[d] / sum);
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
        for (int row = 0; row < length(b); row += kPart) parts.push_back({b, h, row});
    }
    const int64_t count = int64_t(parts.size());
    const Buffer results = buffer(std::max<int64_t>(1, count * part_size));
    if (!results) return "out of memory for the parts of the sequences";
#pragma omp parallel for schedule(dynamic) if (count > 1)
    for (int64_t i = 0; i < count; ++i) {
      const Part& p = parts[i];
      part(p.b, p.head_kv, p.first, std::min(length(p.b), p.first + kPart), results.get() + i * part_size);
    }
    const int64_t rows = int64_t(a.batch) * a.heads;
#pragma omp parallel for schedule(static) if (rows > 64)
    for (int64_t i = 0; i < rows; ++i) {
      const int b = int(i / a.heads), head = int(i % a.heads), parts_of_head = (length(b) + kPart - 1) / kPart;
      merge(b, head, results.get() + (first_part[b] + int64_t(head / group) * parts_of_head) * part_size,
            parts_of_head);
    }
    return nullptr;
  }
};
}  // namespace

FUSESCOPE_KERNEL(const AttentionDecodeArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) { return Decode<decltype(zero)>{*args}.run(); });
}
