// The maximum of a row and the sum of its exponentials in one pass: the sum is rescaled whenever the maximum grows
// (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
#pragma once
#include "../common/reduce.cuh"

struct Online {
  float maximum = -INFINITY, sum = 0.0f;

  __device__ __forceinline__ void add(float x) {
    const float top = fmaxf(maximum, x);
    // Skip -inf before the first finite element: -inf - -inf would be NaN. x = NaN does add NaN.
    if (top != -INFINITY || x != x) {
      sum = sum * (maximum == top ? 1.0f : __expf(maximum - top)) + __expf(x - top);
      maximum = top;
    }
  }

  // Merges the threads of a warp (Threads = 32) or a block: every thread gets the maximum and sum of the row. A row of
  // -inf alone keeps maximum = -inf and sum = 0, for which finish() returns NaN.
  template <int Threads> __device__ __forceinline__ void merge() {
    const float top = group_reduce<Max, Threads>(maximum);
    sum = group_reduce<Sum, Threads>(maximum == top ? sum : sum * __expf(maximum - top));
    maximum = top;
  }

  __device__ __forceinline__ float finish(float x) const { return __expf(x - maximum) / sum; }
};
