// V as fp32 rows; a row's sum stays in vector registers, 64 columns at a time; of each head the long rows are taken first.
#include "../common/cpu_block.h"
#include "spmm.cuh"

using namespace fusescope_cpu;
using namespace cpu_block;

namespace {
// out[0 .. Count * SIZE) = sum of values[t] v[columns[t]]; two sums side by side, so that additions need not wait for one another.
template <int Count, typename T>
inline void gather(const T* values, const int32_t* columns, int64_t count, const float* v, int64_t distance, float* out) {
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

template <typename T>
void spmm_row(const T* values, const int32_t* columns, int64_t count, const float* v, int64_t distance, int64_t width, float* sum) {
  for (int64_t d = 0; d < width; d += 4 * SIZE) switch ((width - d) / SIZE) {
      case 1: gather<1>(values, columns, count, v + d, distance, sum + d); break;
      case 2: gather<2>(values, columns, count, v + d, distance, sum + d); break;
      case 3: gather<3>(values, columns, count, v + d, distance, sum + d); break;
      default: gather<4>(values, columns, count, v + d, distance, sum + d);
    }
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
        Buffer sum = buffer(rows.width);
#pragma omp for schedule(dynamic, 16) nowait
        for (int64_t i = 0; i < count * a.rows; ++i) {
          const int64_t h = first + i / a.rows, r = a.order[i % a.rows], begin = a.row_offsets[r];
          const T* values = static_cast<const T*>(a.values) + h / a.inner * a.values_step[0] + h % a.inner * a.values_step[1] + begin;
          spmm_row(values, a.columns + begin, a.row_offsets[r + 1] - begin, rows.of(first, h), rows.distance, rows.width, sum.get());
          T* to = static_cast<T*>(a.out) + (h * a.rows + r) * a.depth;
#pragma omp simd
          for (int64_t d = 0; d < a.depth; ++d) to[d] = from_float<T>(sum.get()[d]);
        }
      }
    }
    return nullptr;
  });
}
