// K as padded fp32 rows once a head; four keys of a row at a time in vector registers; rows shared out over the OpenMP threads.
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

template <typename T> void sddmm_row(const float* q, const float* keys, int64_t width, const int32_t* columns, int64_t count, T* out) {
  int64_t t = 0;
  for (; t + 4 <= count; t += 4) {
    const float* row[4];
    for (int i = 0; i < 4; ++i) row[i] = keys + columns[t + i] * width;
    float sum[4];
    dots<4>(q, row, width, sum);
    for (int i = 0; i < 4; ++i) out[t + i] = from_float<T>(sum[i]);
  }
  for (; t < count; ++t) {
    const float* row[1] = {keys + columns[t] * width};
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
    const int64_t width = padded(a.depth), heads = a.outer * a.inner;
    Buffer keys = buffer(a.keys * width);
    if (!keys) return "unsupported: no memory for K as fp32";
#pragma omp parallel if (heads * a.nnz * a.depth > 32768)
    {
      Buffer query = buffer(width);
      for (int64_t h = 0; h < heads; ++h) {
        const T* q = static_cast<const T*>(a.q) + h / a.inner * a.q_step[0] + h % a.inner * a.q_step[1];
        const T* k = static_cast<const T*>(a.k) + h / a.inner * a.k_step[0] + h % a.inner * a.k_step[1];
        T* out = static_cast<T*>(a.out) + h * a.nnz;
#pragma omp for schedule(static)
        for (int64_t j = 0; j < a.keys; ++j) pack_row(k + j * a.k_step[2], keys.get() + j * width, a.depth, width);
#pragma omp for schedule(dynamic, 16)
        for (int64_t r = 0; r < a.rows; ++r) {
          const int64_t begin = a.row_offsets[r], count = a.row_offsets[r + 1] - begin;
          if (count == 0) continue;
          pack_row(q + r * a.q_step[2], query.get(), a.depth, width);
          sddmm_row(query.get(), keys.get(), width, a.columns + begin, count, out + begin);
        }
      }
    }
    return nullptr;
  });
}
