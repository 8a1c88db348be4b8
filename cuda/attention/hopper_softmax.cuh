// Online softmax of the two query rows that a thread has of a wgmma accumulator: elements 4 j + 2 r + c are row r's.
#pragma once
#include "../common/exp2.cuh"

namespace hopper {

// A row without a live key has sum 0 and gives zeros; a row with a NaN keeps it, because its context is NaN.
__device__ __forceinline__ float inverse_of_sum(float sum) { return sum > 0.f ? 1.f / sum : 0.f; }

// The maximum over the four lanes that share a row; likewise the sum.
__device__ __forceinline__ float row_maximum(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float row_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Natural: see follow.
template <bool Natural = false> struct OnlineSoftmax {
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f};

  // Row r's maximum follows that of a step, top, only when it exceeds it by a factor of 2^8: sums and context may be
  // that much larger without harm to fp32 sums or 16-bit weights, and most steps then leave the context alone. factor:
  // scores x factor are powers of two; weights are 2^(score factor - shift), and sums and context so far are to be
  // multiplied by shrink. Whether that is not 1. Natural: weights are 2^((score - shift) factor) instead, because a
  // score near the end of the range of fp32 times log2 e is beyond it.
  __device__ __forceinline__ bool follow(int r, float top, float factor, float& shift, float& shrink) {
    const bool follows = (Natural ? (top - maximum[r]) * factor > 8.f : top * factor > maximum[r] * factor + 8.f) ||
                         maximum[r] == -INFINITY;
    const float next = follows ? top : maximum[r];
    shift = next == -INFINITY ? 0.f
            : Natural         ? next
                              : next * factor;  // no live key so far: every weight is exp2(-inf) = 0
    shrink = follows ? exp2_approx(Natural ? (maximum[r] - shift) * factor : maximum[r] * factor - shift) : 1.f;
    maximum[r] = next;
    return follows;
  }

  // The scores of a KV tile in x to weights in x. True for the whole warp where a row's context is to be rescaled.
  __device__ __forceinline__ bool weigh(float (&x)[32], float factor, float (&shrink)[2]) {
    bool grows = false;
    float shift[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = x[2 * r];
#pragma unroll
      for (int j = 0; j < 8; ++j) top = fmaxf(top, fmaxf(x[4 * j + 2 * r], x[4 * j + 2 * r + 1]));
      grows |= follow(r, row_maximum(top), factor, shift[r], shrink[r]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float part[2] = {0.f, 0.f};
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const float score = x[4 * j + 2 * r + c];
          const float weight = exp2_approx(Natural ? (score - shift[r]) * factor : score * factor - shift[r]);
          x[4 * j + 2 * r + c] = weight;
          part[c] += weight;
        }
      }
      sum[r] = sum[r] * shrink[r] + (part[0] + part[1]);
    }
    return __any_sync(0xffffffffu, grows);
  }

  // What the context is to be multiplied by at the end.
  __device__ __forceinline__ void invert_sums(float (&inverse)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) inverse[r] = inverse_of_sum(row_sum(sum[r]));
  }
};

}  // namespace hopper
