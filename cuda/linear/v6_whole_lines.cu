// As v5, but a weight that is not in the L2 cache brings its whole line of 128 bytes, of which each row of a warp has
// half; SwiGLU of a product with both weights needs no launch of its own.
// archs: sm_90a
// expects: HMMA
//
// Without that the two halves of a line are two requests to memory, by neighbouring warps at their own times: 62.3 us
// for 235 MB, 58.0 with it (H200). The same by 256 bytes 58.5.
#include "sixteen_rows.cuh"

FUSESCOPE_KERNEL(const LinearArgs* args, void* stream) { return sixteen_rows<true, true>(*args, stream); }
