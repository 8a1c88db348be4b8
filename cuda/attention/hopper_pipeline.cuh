// One warpgroup's steps of the forward pass: the product O += P V of a step overlaps with the softmax of the next.
#pragma once
#include "hopper_products.cuh"
#include "hopper_softmax.cuh"

namespace hopper {

// Steps begin ... end - 1; x: the accumulators of the scores. The callables take a step, except
//   Tile look(step)          what of the step the mask depends on; read(tile) then reads the mask from global memory
//   apply(tile)              bias and mask of the scores in x
//   before_last(step)        runs before the product with the last tile of values
template <typename T, int Panels, typename Softmax, typename Look, typename Read, typename StartScores, typename Apply,
          typename StartContext, typename FinishContext, typename BeforeLast>
__device__ __forceinline__ void overlap(Context<T, Panels>& context, Softmax& softmax, float (&x)[32], float factor,
                                        int begin, int end, Look look, const Read& read,
                                        const StartScores& start_scores, const Apply& apply,
                                        const StartContext& start_context, const FinishContext& finish_context,
                                        const BeforeLast& before_last) {
  if (begin >= end) return;
  float shrink[2];
  {
    auto tile = look(begin);
    read(tile);
    start_scores(begin);
    wgmma_wait<0>();
    fence_registers(x);
    apply(tile);
    softmax.weigh(x, factor, shrink);
    context.pack_weights(x);
  }
  for (int step = begin + 1; step < end; ++step) {
    auto tile = look(step);
    read(tile);
    start_scores(step);
    start_context(step - 1);
    wgmma_wait<1>();  // only the scores: the context is not waited for before the softmax
    fence_registers(x);
    apply(tile);
    const bool grows = softmax.weigh(x, factor, shrink);
    finish_context(step - 1);
    if (grows) context.rescale(shrink);
    context.pack_weights(x);
  }
  before_last(end - 1);
  start_context(end - 1);
  finish_context(end - 1);
}

}  // namespace hopper
