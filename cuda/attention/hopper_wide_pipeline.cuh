// One warpgroup's steps of 128 keys: the product O += P V of a step overlaps with the softmax of the next.
#pragma once
#include "hopper_schedule.cuh"
#include "hopper_wide_step.cuh"

namespace hopper {

// Steps first, first + stride, ... below end; x, o and weights as in hopper_wide_step.cuh. The callables take a step:
//   read(step, mask)              reads the step's masks from global memory
//   softmax(step, mask, shrink)   scores in x to weights in x; whether the context is to be rescaled
template <typename T, int Accumulators, typename Read, typename StartScores, typename ReleaseK, typename Softmax,
          typename StartContext, typename ReleaseV>
__device__ __forceinline__ void overlap_steps(float (&o)[Accumulators], float (&x)[64], uint32_t (&weights)[8][4],
                                              int first, int stride, int end, const Read& read,
                                              const StartScores& start_scores, const ReleaseK& release_k,
                                              const Softmax& softmax, const StartContext& start_context,
                                              const ReleaseV& release_v) {
  if (first >= end) return;
  StepMask mask;
  float shrink[2];
  read(first, mask);
  start_scores(first);
  wgmma_wait<0>();
  fence_registers(x);
  release_k(first);
  softmax(first, mask, shrink);
  pack_weights<T>(weights, x);
  int before = first;
  for (int step = first + stride; step < end; step += stride) {
    read(step, mask);
    start_scores(step);
    start_context(before);
    wgmma_wait<1>();  // the scores are there; the context overlaps with the softmax
    fence_registers(x);
    release_k(step);
    const bool grows = softmax(step, mask, shrink);
    // Waiting behind a branch: in one block with the softmax, ptxas 13.0 moves the wait before it and nothing overlaps.
    fence_registers(x);
    if (grows) {
      wgmma_wait_in_branch();
      fence_registers(o);
      rescale(o, shrink);
    } else {
      wgmma_wait<0>();
      fence_registers(o);
    }
    release_v(before);
    pack_weights<T>(weights, x);
    before = step;
  }
  start_context(before);
  wgmma_wait<0>();
  fence_registers(o);
  release_v(before);
}

// Steps of the other warpgroup alone; a slot is released only after it was filled.
template <typename AwaitK, typename ReleaseK, typename AwaitV, typename ReleaseV>
__device__ __forceinline__ void pass_by(int from, int to, const AwaitK& await_k, const ReleaseK& release_k,
                                        const AwaitV& await_v, const ReleaseV& release_v) {
  for (int step = from; step < to; ++step) {
    await_k(step);
    release_k(step);
    await_v(step);
    release_v(step);
  }
}

}  // namespace hopper
