// How a warpgroup of a team walks through its items: its query tile of each, whose steps it leaves out where it does
// not need them.
#pragma once
#include "../common/dependent.cuh"
#include "hopper_load.cuh"
#include "hopper_step.cuh"

namespace hopper {

// Warpgroup wg of the block: its query tile of every item of its team.
template <typename T, int Panels, typename S>
__device__ __forceinline__ void take_items(const AttentionArgs& args, const CUtensorMap* out_map, const Items& work,
                                           const Team<S>& team, int wg) {
  const int half = wg % 2;
  const float factor = args.scale * kLog2e;
  const uint64_t first_q = tile_descriptor(team.q.first), first_k = tile_descriptor(team.k.first);
  const uint64_t first_v = Rows<T, Panels>::values_descriptor(team.v.first, team.ones);
  constexpr uint32_t kTile = S::tile_bytes >> 4;
  uint32_t step = 0, stored = 0;
  uint32_t shift = 0;  // of where tiles lie in the rings (hopper_load.cuh)
  Rows<T, Panels> rows;
  bool begun = false;  // there is a context
  float before[2];     // asked for long before it is needed
  for (uint32_t round = 0;; ++round) {
    const uint64_t q = moved_descriptor(first_q, (round % S::q_slots * 2 + half) * kTile);
    team.q.await_full(round);
    const int4 item = team.items[round % S::q_slots];
    const int2 needs = reinterpret_cast<const int2*>(team.needs + round % S::q_slots)[half];
    if (uniform(item.x) < 0) break;
    const int pair = Items::pair(uniform(item.x)), what = uniform(item.w), slot = what / kSlots - 1;
    uint32_t needed = uniform(needs.x), partial = uniform(needs.y);  // the highest bits are those of this step
    auto highest = [](uint32_t bits) { return int(bits) < 0; };
    const uint32_t end = step + what % kRoundSteps;
    if (what & kBegins) {
      shift -= Items::kept(uniform(item.x));
      rows.clear();
      begun = false;
    }
    if (work.later) {
      if (round == 0) wait_for_previous();
      if (what & kEnds && slot < 0)
        work.known(args, uniform(item.y), (2 * pair + half) * 64 + Items::warp_rows(), before);
    }
    float x[32];
    uint32_t weights[4][4];
    uint32_t bits_ahead = 0;
    // Waits for a step's keys and asks for the bits of its tile if that is partial, a step ahead.
    auto look = [&](uint32_t at, uint32_t partial) {
      if (at == end) return;
      team.k.await_full(at);
      if (highest(partial)) {
        const int code = reinterpret_cast<const int*>(team.codes + at % S::kv_slots)[half];
        bits_ahead = args.fragments[int64_t(code) * 128 + threadIdx.x % 128];
      }
    };
    look(step, partial);
    auto start_scores = [&] {
      rows.start_scores(x, q, moved_descriptor(first_k, (step + shift) % S::kv_slots * kTile));
    };
    auto start_context = [&](uint32_t of) {
      team.v.await_full(of);
      rows.start_context(weights, moved_descriptor(first_v, (of + shift) % S::kv_slots * Rows<T, Panels>::values_slot));
    };
    auto finish_context = [&](uint32_t of) {
      wgmma_wait<0>();
      fence_registers(rows.o);
      team.v.release(of);
    };
    auto next = [&] {
      ++step;
      needed <<= 1;
      partial <<= 1;
    };
    float part[2];
    while (step < end) {
      if (!highest(needed)) {
        team.k.release(step);
        team.v.await_full(step);
        team.v.release(step);
        next();
        look(step, partial);
        continue;
      }
      uint32_t bits = bits_ahead;
      start_scores();
      look(step + 1, partial << 1);
      wgmma_wait<0>();
      fence_registers(x);
      if (highest(partial)) rows.mask(x, bits);
      bool again;
      do {  // with scores that may ask for another reference
        again = false;
        team.k.release(step);
        float shrink[2];
        rows.follow(x, factor, shrink);
        rows.template exponentials<0>(x, part);
        rows.template exponentials<1>(x, part);
        if (begun) rows.rescale(shrink);
        rows.add(part);
        rows.pack(weights, x);
        begun = true;
        next();
        for (; highest(needed); next()) {  // a context overlaps with the next scores
          bits = bits_ahead;
          start_scores();
          start_context(step - 1);
          look(step + 1, partial << 1);
          wgmma_wait<1>();
          fence_registers(x);
          if (highest(partial)) rows.mask(x, bits);
          // In two halves: the context is waited for behind the exponentials of the first, and these are packed beside
          // those of the second.
          rows.template weigh<0>(x, factor, part);
          fence_registers(x);
          finish_context(step - 1);
          rows.template weigh<1>(x, factor, part);
          rows.pack(weights, x);
          // Check for growth late so that no instruction stalls on it; rare: then recompute the scores.
          if (__any_sync(0xffffffffu, rows.high(weights))) {
            rows.scores_again(x, team.q.at(round) + half * S::tile_bytes, team.k.at(step + shift), args.head_dim & 1);
            if (highest(partial)) {
              const int code = reinterpret_cast<const int*>(team.codes + step % S::kv_slots)[half];
              rows.mask(x, args.fragments[int64_t(code) * 128 + threadIdx.x % 128]);
            }
            again = true;
            break;
          }
          team.k.release(step);
          rows.add(part);
        }
      } while (again);
      start_context(step - 1);
      finish_context(step - 1);
    }
    team.q.release(round);
    if (!(what & kEnds)) continue;
    rows.total();
    if (slot >= 0)
      work.template leave<T, Panels>(slot, half, rows);
    else
      work.template stage<T, Panels>(args, out_map, uniform(item.y), uniform(item.z), 2 * pair + half, team.out,
                                     stored++, rows, before);
  }
  await_tma_reads<0>();  // shared memory is this block's until then
}

}  // namespace hopper
