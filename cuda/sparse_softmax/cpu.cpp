// Three vectorised passes over the elements of a row, the exponential inlined; the rows of all heads over the OpenMP
// threads.
#include <vector>

#include "../common/cpu.h"
#include "../common/cpu_exp.h"
#include "sparse_softmax.cuh"

using namespace fusescope_cpu;

namespace {
template <typename T> void softmax_row(const T* x, T* out, float* wide, int64_t count, float scale) {
  float highest = -__builtin_inff();
#pragma omp simd reduction(max : highest)
  for (int64_t j = 0; j < count; ++j) {
    const float v = to_float(x[j]) * scale;
    wide[j] = v;
    highest = v > highest ? v : highest;
  }
  double total = 0.0;  // of blocks of 4096 summed in fp32: long rows keep full fp32 accuracy
  for (int64_t from = 0; from < count; from += 4096) {
    const int64_t to = from + 4096 < count ? from + 4096 : count;
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = from; j < to; ++j) {
      const float e = fast_exp(wide[j] - highest);
      wide[j] = e;
      sum += e;
    }
    total += sum;
  }
  const float shrink = float(1.0 / total);
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) out[j] = from_float<T>(wide[j] * shrink);
}
}  // namespace

FUSESCOPE_KERNEL(const SparseSoftmaxArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    const SparseSoftmaxArgs& a = *args;
    const int64_t heads = a.outer * a.inner;
#pragma omp parallel if (heads * a.nnz > 8192)
    {
      std::vector<float> wide;
#pragma omp for schedule(dynamic, 16)
      for (int64_t i = 0; i < heads * a.rows; ++i) {
        const int64_t h = i / a.rows, r = a.order[i % a.rows], begin = a.row_offsets[r],
                      count = a.row_offsets[r + 1] - begin;
        if (int64_t(wide.size()) < count) wide.resize(size_t(count));
        const T* x = static_cast<const T*>(a.x) + h / a.inner * a.x_step[0] + h % a.inner * a.x_step[1] + begin;
        softmax_row(x, static_cast<T*>(a.out) + h * a.nnz + begin, wide.data(), count, a.scale);
      }
    }
    return nullptr;
  });
}
