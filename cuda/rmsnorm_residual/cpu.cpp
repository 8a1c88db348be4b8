// The sum of a row goes into a buffer that stays in the first-level cache; its mean square and the result are passes
// over that.
#include <cmath>
#include <memory>

#include "../common/cpu_norm.h"
#include "rmsnorm_residual.cuh"

using namespace fusescope_cpu;

namespace {
template <typename T> void rows_of(const RmsnormResidualArgs& args) {
  auto x = static_cast<const T*>(args.x.data), residual = static_cast<const T*>(args.residual.data);
  auto out = static_cast<T*>(args.out), total = static_cast<T*>(args.sum);
  const int64_t rows = args.rows, cols = args.cols;
  const Widened<T> weight(args.weight, cols);
#pragma omp parallel if (rows > 1 && rows * cols > 8192)
  {
    std::unique_ptr<float[]> buffer(new float[2 * cols]);
    float *sum = buffer.get(), *more = sum + cols;
#pragma omp for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
      widen(x + row_begin(args.x, r, args.inner), sum, cols);
      if (residual) {
        widen(residual + row_begin(args.residual, r, args.inner), more, cols);
#pragma omp simd
        for (int64_t j = 0; j < cols; ++j) sum[j] += more[j];
        narrow(sum, total + r * cols, cols);
      }
      const double squares = blocked_sum(sum, cols, [](float v) { return v * v; });
      const float scale = float(1.0 / std::sqrt(squares / double(cols) + double(args.eps)));
#pragma omp simd
      for (int64_t j = 0; j < cols; ++j) sum[j] = sum[j] * scale * weight.data[j];
      narrow(sum, out + r * cols, cols);
    }
  }
}
}  // namespace

FUSESCOPE_KERNEL(const RmsnormResidualArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) -> const char* {
    rows_of<decltype(zero)>(*args);
    return nullptr;
  });
}
