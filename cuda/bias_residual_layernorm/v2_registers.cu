// The sum in registers: x and residual read once, the result written once, as 16-byte vectors; a warp or a block per
// row.
#include "registers.cuh"

FUSESCOPE_KERNEL(const BiasResidualLayernormArgs* args, void* stream) {
  return launch(*args, stream, [](int64_t cols, auto body) { return row::by_length(cols, body); });
}
