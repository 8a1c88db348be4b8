// One vectorised pass split over the OpenMP threads.
#include "../common/cpu.h"
#include "add.cuh"

using namespace fusescope_cpu;

FUSESCOPE_KERNEL(const AddArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    auto a = static_cast<const T*>(args->a);
    auto b = static_cast<const T*>(args->b);
    auto out = static_cast<T*>(args->out);
    const int64_t n = args->n;
#pragma omp parallel for simd schedule(static) if (n > 16384)
    for (int64_t i = 0; i < n; ++i) out[i] = from_float<T>(to_float(a[i]) + to_float(b[i]));
    return nullptr;
  });
}
