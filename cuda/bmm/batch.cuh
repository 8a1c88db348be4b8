// Where the matrices of a batch begin: what the kernels of cuda/gemm are given in place of OneMatrix.
#pragma once
#include "bmm.cuh"

struct Batch {
  int64_t total;
  int32_t rank;
  int64_t size[BMM_BATCH_DIMS], a_step[BMM_BATCH_DIMS], b_step[BMM_BATCH_DIMS];

  __host__ __device__ int64_t count() const { return total; }

  // Offsets in elements of matrix z in A and in B; C is dense.
  __device__ void offsets(int64_t z, int64_t& a, int64_t& b) const {
    a = b = 0;
    for (int d = rank - 1; d >= 0; --d) {
      const int64_t i = z % size[d];
      z /= size[d];
      a += i * a_step[d];
      b += i * b_step[d];
    }
  }

  // Whether every matrix of both operands begins a multiple of `elements` after the first.
  bool multiples_of(int elements) const {
    for (int d = 0; d < rank; ++d)
      if (a_step[d] % elements || b_step[d] % elements) return false;
    return true;
  }
};

inline Batch batch_of(const BmmArgs& args) {
  Batch batch{args.batch, args.rank, {}, {}, {}};
  for (int d = 0; d < args.rank; ++d) {
    batch.size[d] = args.size[d];
    batch.a_step[d] = args.a_step[d];
    batch.b_step[d] = args.b_step[d];
  }
  return batch;
}
