// cuBLASLt with bias, GELU (tanh) or residual in its epilogue, by the algorithm that its heuristics name first.
#include "product.cuh"

FUSESCOPE_KERNEL(const LinearArgs* args, void* stream) {
  return args->request == LINEAR_LIST ? list(*args) : compute(*args, *args->first, stream);
}
