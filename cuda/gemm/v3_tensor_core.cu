// Tensor cores by mma.sync: tiles copied four stages ahead by cp.async, swizzled, loaded as fragments by ldmatrix.
// archs: sm_80 sm_86 sm_89 sm_90a
// expects: HMMA
#include "mma_tile.cuh"

FUSESCOPE_KERNEL(const GemmArgs* args, void* stream) {
  switch (args->dtype) {
    case FS_FLOAT16:
      return mma_tile::run<__half>(*args, OneMatrix{}, stream);
    case FS_BFLOAT16:
      return mma_tile::run<__nv_bfloat16>(*args, OneMatrix{}, stream);
  }
  return "unsupported: float32 (the tensor-core kernel takes float16 and bfloat16; use v2_tiled)";
}
