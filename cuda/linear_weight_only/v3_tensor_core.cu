// Tensor cores with the weights as the left operand: sixteen outputs by up to sixteen rows, no shared-memory tiles.
// archs: sm_80 sm_86 sm_89 sm_90a
// expects: HMMA
#include "tensor_core.cuh"

FUSESCOPE_KERNEL(const LinearWeightOnlyArgs* args, void* stream) { return tensor_core_product<false>(*args, stream); }
