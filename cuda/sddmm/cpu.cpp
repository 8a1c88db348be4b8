// K as fp32 rows; four keys of a row at a time in vector registers; the rows of all heads shared out over the OpenMP threads.
#include "../common/cpu_block.h"
#include "sddmm.cuh"

using namespace fusescope_cpu;
using namespace cpu_block;

namespace {
// Dot products of one query with Keys rows, over `width` floats (a multiple of SIZE).
template <int Keys> inline void dots(const float* q, const float* const (&row)[Keys], int64_t width, float (&to)[Keys]) {
  Block sum[Keys] = {};
  for (int64_t d = 0; d < width; d += SIZE) {
    const Block x = load(q + d);
#pragma GCC unroll 8
    for (int i = 0; i < Keys; ++i) sum[i] += x * load(row[i] + d);
  }
#pragma GCC unroll 8
  for (int i = 0; i < Keys; ++i) to[i] = total(sum[i]);
}

template <typename T> void sddmm_row(const float* q, const float* keys, int64_t distance, int64_t width,
                                       const int32_t* columns, int64_t count, T* out) {
  int64_t t = 0;
  for (; t + 4 <= count; t += 4) {
    const float* row[4];
    for (int i = 0; i < 4; ++i) row[i] = keys + columns[t + i] * distance;
    float sum[4];
    dots<4>(q, row, width, sum);
    for (int i = 0; i < 4; ++i) out[t + i] = from_float<T>(sum[i]);
  }
  for (; t < count; ++t) {
    const float* row[1] = {keys + columns[t] * distance};
    float sum[1];
    dots<1>(q, row, width, sum);
    out[t] = from_float<T>(sum[0]);
  }
}
}  // namespace

FUSESCOPE_KERNEL(const SddmmArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    const SddmmArgs& a = *args;
    const int64_t heads = a.outer * a.inner;
    const HeadRows<T> keys{static_cast<const T*>(a.k), a.k_step, heads, a.inner, a.keys, a.depth};
    if (!keys.good()) return "unsupported: no memory for K as fp32";
    for (int64_t first = 0; first < heads; first += keys.round) {
      const int64_t count = std::min(keys.round, heads - first);
#pragma omp parallel if (count * a.nnz * a.depth > 32768)
      {
        if (!keys.direct) {
#pragma omp for schedule(static)
          for (int64_t i = 0; i < count * a.keys; ++i) keys.pack(first, i);
        }
        Buffer query = buffer(keys.width);
#pragma omp for schedule(dynamic, 16) nowait
        for (int64_t i = 0; i < count * a.rows; ++i) {
          const int64_t h = first + i / a.rows, r = i % a.rows, begin = a.row_offsets[r], kept = a.row_offsets[r + 1] - begin;
          if (kept == 0) continue;
          const T* q = static_cast<const T*>(a.q) + h / a.inner * a.q_step[0] + h % a.inner * a.q_step[1] + r * a.q_step[2];
          pack_row(q, query.get(), a.depth, keys.width);
          sddmm_row(query.get(), keys.of(first, h), keys.distance, keys.width, a.columns + begin, kept,
                    static_cast<T*>(a.out) + h * a.nnz + begin);
        }
      }
    }
    return nullptr;
  });
}
