// Three vectorised passes over a row that stays in cache, the exponential inlined; rows split over the OpenMP threads.
#include <memory>

#include "../common/cpu_softmax.h"
#include "softmax.cuh"

using namespace fusescope_cpu;

FUSESCOPE_KERNEL(const SoftmaxArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    auto x = static_cast<const T*>(args->x);
    auto out = static_cast<T*>(args->out);
    const int64_t rows = args->rows, cols = args->cols, step = args->x_row;
#pragma omp parallel if (rows > 1 && rows * cols > 8192)
    {
      std::unique_ptr<float[]> buffer(sizeof(T) == 4 ? nullptr : new float[cols]);
#pragma omp for schedule(static)
      for (int64_t r = 0; r < rows; ++r) {
        const T* from = x + r * step;
        T* to = out + r * cols;
        softmax_row([from](int64_t j) { return to_float(from[j]); }, to,
                    buffer ? buffer.get() : reinterpret_cast<float*>(to), cols);
      }
    }
    return nullptr;
  });
}
