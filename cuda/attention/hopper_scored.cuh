// Soft-capped scores and attention sinks (scored.h) of the Hopper kernels: v4 to v6 are compiled for AttentionArgs and,
// apart, for ScoredArgs or, v5 and v6, ScoredItemArgs and what is derived from it.
#pragma once
#include "../common/exp2.cuh"
#include "attention.cuh"
#include "scored.h"
#include "softcap.cuh"

namespace hopper {

struct ScoredArgs : AttentionArgs {
  AttentionScored more;
};
template <typename Args> constexpr bool kScored = std::is_base_of_v<ScoredArgs, Args>;

// Of kernels on work items, with the factors that their scores need: what a kernel is given costs its loop no
// registers, unlike what it computes.
struct ScoredItemArgs : ScoredArgs {
  float factor;                     // to_powers_of_two
  float inner, outer, twice_outer;  // a score x becomes outer tanh(x inner / (2 log2 e)), a power of two; 0: no cap
};
inline ScoredItemArgs for_items(const AttentionArgs& args, const AttentionScored& more) {
  const float cap = more.softcap;
  if (!(cap > 0.f)) return {{args, more}, args.scale * kLog2e, 0.f, 0.f, 0.f};
  return {{args, more}, 1.f, args.scale / cap * (2.f * kLog2e), cap * kLog2e, 2.f * cap * kLog2e};
}

// With a bias, and maybe a soft-cap or sinks (hopper_items_bias.cuh). Scores are in natural units: factor is log2 e,
// and outer makes them such.
struct BiasedItemArgs : ScoredItemArgs {
  float bias_scale;  // of the scores that the bias is added to
  // Key n of a tile is (n & k_mask) k_modulus + (n >> k_shift) behind its first, since a tile is keys of one residue
  // class or several whole classes (parts.h).
  int k_modulus, k_mask, k_shift;
};
template <typename Args> constexpr bool kBiasedItems = std::is_base_of_v<BiasedItemArgs, Args>;
inline BiasedItemArgs with_bias(const AttentionArgs& args, const AttentionScored& more) {
  const float cap = more.softcap;
  if (!(cap > 0.f)) return {{{args, more}, kLog2e, 0.f, 0.f, 0.f}, args.scale, 1, 63, 6};
  return {{{args, more}, kLog2e, args.scale / cap * (2.f * kLog2e), cap, 2.f * cap}, 1.f, 1, 63, 6};
}

__device__ __forceinline__ const AttentionScored& scored_of(const ScoredArgs& args) { return args.more; }
__device__ __forceinline__ AttentionScored scored_of(const AttentionArgs&) { return {}; }

// What converts the scores, as they are when they are masked, to powers of two.
__device__ __forceinline__ float to_powers_of_two(const AttentionArgs& args) { return args.scale * kLog2e; }
__device__ __forceinline__ float to_powers_of_two(const ScoredArgs& args) {
  return kExpressed || args.more.softcap > 0.f ? kLog2e : args.scale * kLog2e;
}
__device__ __forceinline__ float to_powers_of_two(const ScoredItemArgs& args) { return args.factor; }

// Scores in x, times scale and capped, before the mask; as they are without a cap.
template <int N> __device__ __forceinline__ void cap_scores(float (&x)[N], float scale, float softcap) {
  if (softcap <= 0.f) return;
#pragma unroll
  for (float& score : x) score = capped(score * scale, softcap);
}
template <int N> __device__ __forceinline__ void cap_scores(float (&x)[N], const ScoredItemArgs& args) {
  if (args.outer <= 0.f) return;
#pragma unroll
  for (float& score : x) score = args.outer - __fdividef(args.twice_outer, 1.f + exp2_approx(score * args.inner));
}

// What the context of the thread's two rows is to be multiplied by where head has a sink, a key more whose value is
// zero. maximum times factor and the sink times log2 e are powers of two.
__device__ __forceinline__ void divide_with_sink(float (&inverse)[2], float sink, const float (&sum)[2],
                                                 const float (&maximum)[2], float factor) {
  if (sink == -INFINITY) return;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float top = fmaxf(maximum[r] * factor, sink * kLog2e), shrink = exp2_approx(maximum[r] * factor - top);
    const float total = sum[r] * shrink + exp2_approx(sink * kLog2e - top);
    inverse[r] = total > 0.f ? shrink / total : total;  // a NaN stays NaN
  }
}

}  // namespace hopper
