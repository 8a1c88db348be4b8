// The packed, register-blocked product of cuda/gemm, with the blocks of all matrices of the batch split over the OpenMP
// threads.
#include "../common/cpu_matrix.h"
#include "bmm.cuh"

FUSESCOPE_KERNEL(const BmmArgs* args, void*) {
  auto offset = [args](int64_t z, int64_t& a, int64_t& b) {
    for (int d = args->rank - 1; d >= 0; --d) {
      const int64_t i = z % args->size[d];
      z /= args->size[d];
      a += i * args->a_step[d];
      b += i * args->b_step[d];
    }
  };
  return fusescope_cpu::dispatch(args->matrix.dtype, [&](auto zero) -> const char* {
    cpu_matrix::multiply<decltype(zero)>(args->matrix, args->batch, offset);
    return nullptr;
  });
}
