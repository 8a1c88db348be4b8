// The maximum of a row and the sum of its exponentials in one pass: both are carried along, and the sum is rescaled
// whenever the maximum grows (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
#pragma once
#include "../common/reduce.cuh"

struct Online {
  float highest = -INFINITY, sum = 0.0f;

  __device__ __forceinline__ void add(float x) {
    const float top = fmaxf(highest, x);
    // As long as everything was -inf there is nothing to rescale or add, and -inf - -inf would be NaN. x = NaN does add
    // NaN.
    if (top != -INFINITY || x != x) {
      sum = sum * (highest == top ? 1.0f : __expf(highest - top)) + __expf(x - top);
      highest = top;
    }
  }

  // Over a warp (Threads = 32) or a block: afterwards every thread has the values of the whole row. A row of nothing
  // but -inf keeps highest = -inf and sum = 0, of which finish makes NaN.
  template <int Threads> __device__ __forceinline__ void join() {
    const float top = group_reduce<Max, Threads>(highest);
    sum = group_reduce<Sum, Threads>(highest == top ? sum : sum * __expf(highest - top));
    highest = top;
  }

  __device__ __forceinline__ float finish(float x) const { return __expf(x - highest) / sum; }
};
