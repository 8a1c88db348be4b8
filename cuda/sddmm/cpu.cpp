// K as fp32 rows; four keys of a row at a time in vector registers; the rows of all heads split over the OpenMP
// threads.
#include "../common/cpu_block.h"
#include "sddmm.cuh"

using namespace fusescope_cpu;
using namespace cpu_block;

namespace {
// Dot products of one query with Keys rows, over `width` floats (a multiple of SIZE).
template <int Keys>
inline void dots(const float* q, const float* const (&row)[Keys], int64_t width, float (&to)[Keys]) {
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
// One row of a block: the kept columns as a list, their products put into place, zeros elsewhere.
template <typename T> void block_row(const float* q, const float* keys, int64_t distance, int64_t width,
                                     int64_t first_key, uint64_t bits, int block, T* out) {
  int32_t columns[64] = {};
  T products[64];
  int count = 0;
  for (uint64_t rest = bits; rest; rest &= rest - 1) columns[count++] = int32_t(first_key + __builtin_ctzll(rest));
  sddmm_row(q, keys, distance, width, columns, count, products);
  std::fill_n(out, block, from_float<T>(0.0f));
  for (int i = 0; i < count; ++i) out[columns[i] - first_key] = products[i];
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
          const int64_t h = first + i / a.rows, r = i % a.rows, list = a.block ? r / a.block : r;
          const int64_t begin = a.row_offsets[list], entries = a.row_offsets[list + 1] - begin;
          if (entries == 0) continue;
          const T* q =
              static_cast<const T*>(a.q) + h / a.inner * a.q_step[0] + h % a.inner * a.q_step[1] + r * a.q_step[2];
          pack_row(q, query.get(), a.depth, keys.width);
          const float* of_head = keys.of(first, h);
          if (!a.block) {
            T* out = static_cast<T*>(a.out) + h * a.nnz + begin;
            sddmm_row(query.get(), of_head, keys.distance, keys.width, a.columns + begin, entries, out);
            continue;
          }
          for (int64_t t = begin; t < begin + entries; ++t) {
            T* out = static_cast<T*>(a.out) + ((h * a.nnz + t) * a.block + r % a.block) * a.block;
            const uint64_t bits = a.bits[t * a.block + r % a.block];
            block_row(query.get(), of_head, keys.distance, keys.width, int64_t(a.columns[t]) * a.block, bits, a.block,
                      out);
          }
        }
        if (a.block && a.rows % a.block) {  // rows of the last blocks that do not exist
          const int64_t list = a.rows / a.block;
#pragma omp for schedule(static) nowait
          for (int64_t i = 0; i < count * (a.row_offsets[list + 1] - a.row_offsets[list]); ++i) {
            const int64_t entries = a.row_offsets[list + 1] - a.row_offsets[list];
            const int64_t at = (first + i / entries) * a.nnz + a.row_offsets[list] + i % entries;
            T* out = static_cast<T*>(a.out) + at * a.block * a.block;
            std::fill(out + a.rows % a.block * a.block, out + a.block * a.block, from_float<T>(0.0f));
          }
        }
      }
    }
    return nullptr;
  });
}
