// The schedule (attention.cuh) of a block in shared memory: steps of two KV tiles that two neighbouring query tiles
// share.
#pragma once
#include "../common/warpgroup.cuh"
#include "attention.cuh"

namespace hopper {

// By all Threads of the block: the list of the pair that q_tile is of.
template <int Threads>
__device__ __forceinline__ void copy_schedule(const AttentionArgs& args, int b, int h, int q_tile, int4* schedule) {
  const int pairs = ((args.seq_q + 63) / 64 + 1) / 2;
  const int64_t list = int64_t(b * args.mask_stride_b + h * args.mask_stride_h) * pairs + q_tile / 2;
  const int4* from = reinterpret_cast<const int4*>(args.schedule) + list * args.schedule_stride;
  for (int i = threadIdx.x; i < args.schedule_stride; i += Threads) schedule[i] = from[i];
}

// The same where every key is live: entry i of the header and the steps.
__device__ __forceinline__ void write_full_step(int4* schedule, int i, int steps, int kv_tiles) {
  if (i == 0) {
    schedule[0] = make_int4(steps, 0, steps, 0);
  } else {
    const int one = 2 * i - 2, two = 2 * i - 1;
    schedule[2 * i - 1] = make_int4(one, two < kv_tiles ? two : one, 0, 0);
    schedule[2 * i] = make_int4(-1, -1, -1, -1);
  }
}

// The masks of a step's two KV tiles for one query tile: a code (attention.cuh), and where that is not -1 the thread's
// row of fragments.
struct StepMask {
  int code[2];
  uint32_t bits[2];
};

// half: which of the pair's query tiles.
__device__ __forceinline__ void read_mask(const AttentionArgs& args, const int4* schedule, int step, int half,
                                          StepMask& mask) {
  const int4 all = schedule[2 * step + 2];
  mask.code[0] = uniform(half ? all.z : all.x);
  mask.code[1] = uniform(half ? all.w : all.y);
#pragma unroll
  for (int n = 0; n < 2; ++n)
    if (mask.code[n] >= 0) mask.bits[n] = args.fragments[int64_t(mask.code[n]) * 128 + threadIdx.x % 128];
}

// Masks by the fragments where there are, and what lies beyond the last key.
__device__ __forceinline__ void mask_scores(float (&x)[64], const AttentionArgs& args, const StepMask& mask, int step,
                                            int first_column) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    if (mask.code[n] >= 0) {
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (!(mask.bits[n] & (1u << i))) x[32 * n + i] = -INFINITY;
    }
  }
  if (args.schedule == nullptr && 128 * step + 128 > args.seq_k) {  // a schedule has bitmaps for its edges
#pragma unroll
    for (int i = 0; i < 64; ++i)
      if (128 * step + 8 * (i / 4) + first_column + (i & 1) >= args.seq_k) x[i] = -INFINITY;
  }
}

}  // namespace hopper
