// Consumer warpgroup: computes its query tile of each item of the block and skips steps that are dead for it.
#pragma once
#include "producer.cuh"
#include "step.cuh"
#include "store.cuh"

namespace fp8 {

#define FS_INLINE __attribute__((always_inline))

// This thread's first row of a query tile.
__device__ __forceinline__ int first_row() {
  const int thread = thread_here();
  return 16 * (thread / 32 % 4) + thread % 32 / 4;
}

// By warpgroup wg of the block.
template <typename T, typename S>
__device__ __forceinline__ void consume(const AttentionFp8Args& args, const Memory<S>& memory, int wg) {
  constexpr int D = S::D, WG = S::WG;
  const uint64_t first_q = hopper::fp8_descriptor<D>(memory.q.first + wg * S::tile_bytes);
  const uint64_t first_k = hopper::fp8_descriptor<D>(memory.k.first);
  const uint64_t first_v = hopper::fp8_descriptor<64>(memory.v.first);
  uint32_t step = 0;
  Rows<D> rows(memory.kept + wg * (Rows<D>::kAccumulators / 4 * 128) + threadIdx.x % 128);
  float x[32];
  uint32_t even[2][4], odd[2][4];  // weights of two steps
  for (uint32_t round = 0;; ++round) {
    memory.q.await_full(round);
    const Round about = memory.rounds[round % S::q_stages];
    const int head = hopper::uniform(about.head), q_tile = hopper::uniform(about.q_block) * WG + wg;
    if (head < 0) break;
    const uint64_t q = hopper::moved_descriptor(first_q, round % S::q_stages * (S::query_bytes >> 4));
    rows.clear();

    Codes codes;  // of the step
    // Masks what the rows do not see of the step's tile.
    const auto mask = [&]() FS_INLINE {
      if (codes.code == -1) return;
      const int first = memory.steps[step % S::k_stages].tile * FP8_TILE, row = first_row();
      const int diagonal = args.causal ? q_tile * FP8_TILE + row + args.seq_k - args.seq_q + 1 : args.seq_k;
      uint64_t live[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        live[r] = 0;
        const int end = args.causal && diagonal + 8 * r < args.seq_k ? diagonal + 8 * r : args.seq_k;
        if (codes.code >= 0) live[r] = args.bitmaps[int64_t(codes.code) * FP8_TILE + row + 8 * r];
        if (codes.code == kByIndex && end > first)
          live[r] = end - first >= 64 ? ~uint64_t(0) : (uint64_t(1) << (end - first)) - 1;
      }
      Rows<D>::mask(x, live);
    };
    const auto start_scores = [&]() FS_INLINE {
      Rows<D>::start_scores(x, q, hopper::moved_descriptor(first_k, step % S::k_stages * (S::tile_bytes >> 4)));
    };
    const auto start_context = [&](const uint32_t (&weights)[2][4]) FS_INLINE {  // of the step before
      const uint32_t of = step - 1;
      rows.start_context(weights, hopper::moved_descriptor(first_v, of % S::v_stages * (S::value_bytes >> 4)));
    };
    const auto finish_context = [&]() FS_INLINE {
      hopper::fence_registers(rows.part);
      memory.v.release(step - 1);
      rows.count();
    };
    // Scores in x to weights, raising the rows' references where need be.
    const auto settle = [&](uint32_t (&to)[2][4]) FS_INLINE {
      float shrink[2];
      rows.update_reference(x, codes.factor, shrink);
      Rows<D>::exponentials(x);
      rows.rescale(shrink);
      Rows<D>::pack(to, x);
    };
    bool more = hopper::uniform(about.steps), live = false;
    // Waits for the keys of the step; live: whether there is one, for this query tile.
    const auto look = [&]() FS_INLINE {
      live = false;
      if (!more) return;
      memory.k.await_full(step);
      codes = memory.steps[step % S::k_stages].codes[wg];
      live = hopper::uniform(codes.code != kDead);
    };
    // Ends a step, whose keys have been read, and looks at the next.
    const auto next = [&]() FS_INLINE {
      more = !hopper::uniform(memory.steps[step % S::k_stages].last);
      memory.k.release(step);
      if (!more) memory.q.release(round);
      ++step;
      look();
    };
    // The scores and weights of a step, while P V of the one before, of weights `of`, runs.
    const auto advance = [&](const uint32_t (&of)[2][4], uint32_t (&to)[2][4]) FS_INLINE {
      memory.v.await_full(step - 1);
      start_scores();
      start_context(of);
      hopper::wgmma_wait<1>();
      hopper::fence_registers(x);
      mask();
      rows.exponentiate(x, codes.factor);
      Rows<D>::pack(to, x);
      // Check for growth late so that no instruction stalls on it; rare: then recompute the scores. The waits for P V
      // stand behind the branch, else ptxas 13.0 moves them before the exponentials.
      if (__any_sync(0xffffffffu, Rows<D>::exceed_ceiling(to))) {
        Rows<D>::recompute_scores(x, memory.q.at(round) + wg * S::tile_bytes, memory.k.at(step));
        mask();
        hopper::wgmma_wait_in_branch();
        finish_context();
        settle(to);
      } else {
        hopper::wgmma_wait<0>();
        finish_context();
      }
      next();
    };
    const auto end = [&](const uint32_t (&of)[2][4]) FS_INLINE {
      memory.v.await_full(step - 1);
      start_context(of);
      hopper::wgmma_wait<0>();
      finish_context();
    };

    if (!more) memory.q.release(round);
    look();
    while (more) {
      if (!live) {
        memory.v.await_full(step);
        memory.v.release(step);
        next();
        continue;
      }
      start_scores();
      hopper::wgmma_wait<0>();
      hopper::fence_registers(x);
      mask();
      settle(even);
      next();
      for (;;) {  // two steps, so that neither copies its weights
        if (!live) {
          end(even);
          break;
        }
        advance(even, odd);
        if (!live) {
          end(odd);
          break;
        }
        advance(odd, even);
      }
    }
    rows.total();
    store<T, D>(args, head / args.heads, head % args.heads, q_tile * FP8_TILE + first_row(), rows);
  }
}

#undef FS_INLINE
}  // namespace fp8
