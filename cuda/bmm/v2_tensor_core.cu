// The tensor-core tiles of cuda/gemm over all matrices of the batch in one grid; broadcast operands are read in
// place.
// archs: sm_80 sm_86 sm_89 sm_90a
// expects: HMMA
#include "../gemm/mma_tile.cuh"
#include "batch.cuh"

FUSESCOPE_KERNEL(const BmmArgs* args, void* stream) {
  switch (args->matrix.dtype) {
    case FS_FLOAT16:
      return mma_tile::run<__half>(args->matrix, batch_of(*args), stream);
    case FS_BFLOAT16:
      return mma_tile::run<__nv_bfloat16>(args->matrix, batch_of(*args), stream);
  }
  return "unsupported: float32 (the tensor-core kernel takes float16 and bfloat16; use v1_tiled)";
}
