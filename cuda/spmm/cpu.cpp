// V as fp32 rows; a row's sum stays in vector registers, 64 columns at a time; long rows of each head come
// first.
#include <vector>

#include "../common/cpu_block.h"
#include "spmm.cuh"

using namespace fusescope_cpu;
using namespace cpu_block;

namespace {
// out[0 .. Count * SIZE) = sum of values[t] v[columns[t]]; two sums side by side, so that additions need not wait for
// one another.
template <int Count, typename T> inline void gather(const T* values, const int32_t* columns, int64_t count,
                                                    const float* v, int64_t distance, float* out) {
  Block even[Count] = {}, odd[Count] = {};
  int64_t t = 0;
  for (; t + 2 <= count; t += 2) {
    const float p = to_float(values[t]), r = to_float(values[t + 1]);
    const float *a = v + columns[t] * distance, *b = v + columns[t + 1] * distance;
#pragma GCC unroll 4
    for (int i = 0; i < Count; ++i) {
      even[i] += p * load(a + i * SIZE);
      odd[i] += r * load(b + i * SIZE);
    }
  }
  if (t < count) {
    const float p = to_float(values[t]);
    const float* a = v + columns[t] * distance;
    for (int i = 0; i < Count; ++i) even[i] += p * load(a + i * SIZE);
  }
  for (int i = 0; i < Count; ++i) store(out + i * SIZE, even[i] + odd[i]);
}

template <typename T> void spmm_row(const T* values, const int32_t* columns, int64_t count, const float* v,
                                    int64_t distance, int64_t width, float* sum) {
  over_columns(width, [&](auto blocks, int64_t d) {
    gather<decltype(blocks)::value>(values, columns, count, v + d, distance, sum + d);
  });
}

template <typename T> void write_row(const float* sum, T* to, int64_t depth) {
#pragma omp simd
  for (int64_t d = 0; d < depth; ++d) to[d] = from_float<T>(sum[d]);
}

// The keys of a block row, one after another.
void block_columns(const SpmmArgs& a, int64_t begin, int64_t entries, std::vector<int32_t>& to) {
  to.clear();
  for (int64_t t = begin; t < begin + entries; ++t)
    for (int64_t c = int64_t(a.columns[t]) * a.block; c < std::min(a.keys, int64_t(a.columns[t] + 1) * a.block); ++c)
      to.push_back(int32_t(c));
}
}  // namespace

FUSESCOPE_KERNEL(const SpmmArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    const SpmmArgs& a = *args;
    const int64_t heads = a.outer * a.inner;
    const HeadRows<T> rows{static_cast<const T*>(a.v), a.v_step, heads, a.inner, a.keys, a.depth};
    if (!rows.good()) return "unsupported: no memory for V as fp32";
    for (int64_t first = 0; first < heads; first += rows.round) {
      const int64_t count = std::min(rows.round, heads - first);
#pragma omp parallel if (count * (a.nnz + a.rows) * a.depth > 32768)
      {
        if (!rows.direct) {
#pragma omp for schedule(static)
          for (int64_t i = 0; i < count * a.keys; ++i) rows.pack(first, i);
        }
        Buffer sum = buffer(rows.width), weights;
        std::vector<int32_t> columns;
        const int64_t lists = a.block ? (a.rows + a.block - 1) / a.block : a.rows;
#pragma omp for schedule(dynamic, 16) nowait
        for (int64_t i = 0; i < count * lists; ++i) {
          const int64_t h = first + i / lists, list = a.order[i % lists], begin = a.row_offsets[list];
          const int64_t entries = a.row_offsets[list + 1] - begin;
          const T* values =
              static_cast<const T*>(a.values) + h / a.inner * a.values_step[0] + h % a.inner * a.values_step[1];
          const float* v = rows.of(first, h);
          T* out = static_cast<T*>(a.out) + h * a.rows * a.depth;
          if (!a.block) {
            spmm_row(values + begin, a.columns + begin, entries, v, rows.distance, rows.width, sum.get());
            write_row(sum.get(), out + list * a.depth, a.depth);
            continue;
          }
          block_columns(a, begin, entries, columns);
          weights = buffer(int64_t(columns.size()));
          for (int64_t r = list * a.block; r < std::min(a.rows, (list + 1) * a.block); ++r) {
            int64_t n = 0;  // a row of all its blocks, as one list
            for (int64_t t = begin; t < begin + entries; ++t) {
              const T* row = values + (t * a.block + r % a.block) * a.block;
              const int64_t here = std::min<int64_t>(a.block, a.keys - int64_t(a.columns[t]) * a.block);
              for (int64_t c = 0; c < here; ++c) weights.get()[n++] = to_float(row[c]);
            }
            spmm_row(weights.get(), columns.data(), n, v, rows.distance, rows.width, sum.get());
            write_row(sum.get(), out + r * a.depth, a.depth);
          }
        }
      }
    }
    return nullptr;
  });
}
