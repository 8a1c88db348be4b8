// Three vectorised passes over the elements of a row, the exponential inlined; the rows of all heads over the OpenMP
// threads.
#include <vector>

#include "../common/cpu_softmax.h"
#include "sparse_softmax.cuh"

using namespace fusescope_cpu;

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
        softmax_row([x, scale = a.scale](int64_t j) { return to_float(x[j]) * scale; },
                    static_cast<T*>(a.out) + h * a.nnz + begin, wide.data(), count);
      }
    }
    return nullptr;
  });
}
