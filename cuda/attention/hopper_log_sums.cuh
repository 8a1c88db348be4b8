// Log-sum-exps of rows, by which parts of a mask are merged: powers of two, or with a bias in natural units
// (hopper_step.cuh).
#pragma once
#include "hopper_scored.cuh"

namespace hopper {

// A log2-sum-exp with an attention sink more.
__device__ __forceinline__ float add_sink(float lse, float sink) {
  const float top = fmaxf(lse, sink * kLog2e);
  if (sink == -INFINITY || top == -INFINITY) return lse;
  return top + log2f(exp2_approx(lse - top) + exp2_approx(sink * kLog2e - top));
}
// The same in natural units.
__device__ __forceinline__ float add_sink_naturally(float lse, float sink) {
  const float top = fmaxf(lse, sink);
  if (sink == -INFINITY || top == -INFINITY) return lse;
  return top + log2f(exp2_approx((lse - top) * kLog2e) + exp2_approx((sink - top) * kLog2e)) / kLog2e;
}

// Of a row over its keys and its sink.
template <typename Args> __device__ __forceinline__ float log_sum_exp(float sum, float reference, float sink) {
  if constexpr (kBiasedItems<Args>)
    return add_sink_naturally(sum > 0.f ? reference + log2f(sum) / kLog2e : -INFINITY, sink);
  const float keys = sum > 0.f ? reference + log2f(sum) : -INFINITY;
  if constexpr (kScored<Args>) return add_sink(keys, sink);
  return keys;
}

// Of natural units: the log-sum-exp of a row that is complete, so that later parts have no share; and how large one may
// be without rounding off more than 2^-12 of the sum.
constexpr float kCompleteLogSum = INFINITY, kFarLogSum = 8192.f;

// Merges a row's results, `before` of earlier parts and `now` of this one, in natural units: factors of both,
// log-sum-exp of both. The factor of this part is NaN where the log-sum-exps are too large to tell the shares: such a
// row is computed again.
__device__ __forceinline__ float merge_naturally(float before, float now, float& mine, float& previous) {
  // What equals the larger one has a share without a difference of infinities.
  const float top = fmaxf(before, now);
  const float old_share = before == top ? 1.f : exp2_approx((before - top) * kLog2e),
              new_share = now == top ? 1.f : exp2_approx((now - top) * kLog2e), all = old_share + new_share;
  const bool vague = old_share * new_share > 0.f && fabsf(top) > kFarLogSum && top > -INFINITY;
  previous = old_share / all;
  mine = vague ? NAN : mine * (new_share / all);
  return top + log2f(all) / kLog2e;
}

}  // namespace hopper
