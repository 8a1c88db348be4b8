// Batched matrix product: out[..., :, :] = A[..., :, :] B[..., :, :] over broadcast batch dimensions.
#pragma once
#include "../gemm/gemm.cuh"

constexpr int BMM_BATCH_DIMS = 16;

// The batch is counted in row-major order over the dimensions `size`; C is dense in that order. An operand that is
// broadcast along a dimension has distance 0 there. Dimensions that both operands step through evenly have been merged,
// so rank is mostly 0 or 1; where B is the same for the whole batch and the rows of A follow one another evenly, the
// batch has become rows (rank 0).
struct BmmArgs {
  GemmArgs matrix;                 // of batch 0
  int64_t batch;                   // product of size[0 .. rank), >= 1
  int32_t rank;                    // 0 .. BMM_BATCH_DIMS
  int64_t size[BMM_BATCH_DIMS];    // extents, outermost first
  int64_t a_step[BMM_BATCH_DIMS];  // distance in elements between neighbours along each dimension, in A
  int64_t b_step[BMM_BATCH_DIMS];  // ... and in B
};
