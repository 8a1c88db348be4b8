// The shared-memory tiles of cuda/gemm over all matrices of the batch in one grid; broadcast operands are read in
// place.
#include "../gemm/simt.cuh"
#include "batch.cuh"

FUSESCOPE_KERNEL(const BmmArgs* args, void* stream) {
  return dispatch(args->matrix.dtype,
                  [&](auto zero) { return simt::run<decltype(zero)>(args->matrix, batch_of(*args), stream); });
}
