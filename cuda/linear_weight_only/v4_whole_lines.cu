// As v3, but a weight that is not in the L2 cache brings its whole line of 128 bytes, of which each row of a warp has
// half (cuda/linear/v6_whole_lines.cu).
// archs: sm_80 sm_86 sm_89 sm_90a
// expects: HMMA
#include "tensor_core.cuh"

FUSESCOPE_KERNEL(const LinearWeightOnlyArgs* args, void* stream) { return tensor_core_product<true>(*args, stream); }
