// Producer warp of a team of consumer warpgroups: reads work items and their tile lists and loads queries, keys and
// values by TMA into ring buffers (hopper_shared.cuh) as stages are released, across the bounds of items.
#pragma once
#include "../common/dependent.cuh"
#include "hopper_work_items.cuh"
#include "hopper_shared.cuh"

namespace hopper {

constexpr int kDeadTile = -2;  // code of a KV tile that is dead for a query tile

// A round is a work item, or 32 steps of a longer one. SharedStorage::items of its query stage: the item's first word
// (parts.h), -1 after the last; batch entry * heads + head; batch entry; and the sum of
constexpr int kRoundSteps = 64;                    // the round's steps, below this,
constexpr int kFirstRound = 64, kLastRound = 128;  // whether it is the item's first and last round,
constexpr int kPartialSlot = 256;                  // and this times 1 + slot of the item's partial result

// What each lane of the producer warp prefetches, because global memory is half a microsecond away: a work item and an
// entry of the schedule.
struct Prefetched {
  int4 item, entry;
};

__device__ __forceinline__ int4 broadcast_item(int4 mine, int turn) {
  constexpr uint32_t kAll = 0xffffffff;
  const int from = turn % 32;
  return make_int4(__shfl_sync(kAll, mine.x, from), __shfl_sync(kAll, mine.y, from), __shfl_sync(kAll, mine.z, from),
                   __shfl_sync(kAll, mine.w, from));
}

// An entry of the schedule of groups of so many query tiles (parts.h).
template <int Tiles> struct Entry;
template <> struct Entry<2> {
  static __device__ __forceinline__ int4 dead() { return make_int4(0, 0, kDeadTile, kDeadTile); }
  static __device__ __forceinline__ int2 place(const WorkItems&, int4 entry) { return make_int2(entry.x, entry.y); }
  static __device__ __forceinline__ int code(int4 entry, int tile) { return tile == 0 ? entry.z : entry.w; }
};
template <> struct Entry<3> {
  static __device__ __forceinline__ int4 dead() { return make_int4(0, kDeadTile, kDeadTile, kDeadTile); }
  static __device__ __forceinline__ int2 place(const WorkItems& work, int4 entry) { return work.strided_key(entry.x); }
  static __device__ __forceinline__ int code(int4 entry, int tile) {
    return tile == 0 ? entry.y : tile == 1 ? entry.z : entry.w;
  }
};

template <int Tiles> __device__ __forceinline__ int4 load_entry(const WorkItems& work, int4 item, uint32_t from) {
  const uint32_t at = from + threadIdx.x % 32;
  return item.x >= 0 && at < WorkItems::steps(item.w) ? work.schedule[item.z + at] : Entry<Tiles>::dead();
}

template <int Tiles> __device__ __forceinline__ Prefetched first_prefetch(const WorkItems& work, int number) {
  const int4 mine = work.item(threadIdx.x % 32, number);
  return {mine, load_entry<Tiles>(work, broadcast_item(mine, 0), 0)};
}

// By the producer warp of team `number` of the grid. previous_map: the results of earlier parts, by tiles. Each lane
// holds one of the next 32 items and one entry of this and of the next round. The first are read before the preceding
// kernel has finished: they are complete since the plan is (parts.py waits for that).
template <int Panels, typename S>
__device__ __forceinline__ void produce_work_items(const CUtensorMap* q_map, const CUtensorMap* k_map,
                                                   const CUtensorMap* v_map, const CUtensorMap* previous_map,
                                                   const AttentionArgs& args, const WorkItems& work,
                                                   const SharedStorage<S>& smem, int number, Prefetched prefetched) {
  using E = Entry<S::tiles>;
  constexpr uint32_t kAll = 0xffffffff;
  const int lane = threadIdx.x % 32, group = args.heads / args.heads_kv;
  const bool leader = lane == 0;
  int turn = 0;
  uint32_t step = 0, merged = 0, from = 0;
  uint32_t shift = 0;  // a step's tiles are in stage step + shift: reused tiles stay in place
  int4 item = broadcast_item(prefetched.item, 0);
  if (!work.has_previous) wait_for_previous();
  for (uint32_t round = 0;; ++round) {
    smem.q.await_empty(round);
    uint64_t* const full = smem.q.full + round % S::q_stages;
    if (item.x < 0) {  // no more
      if (leader) {
        smem.items[round % S::q_stages] = item;
        barrier_arrive(full, 1);
      }
      return;
    }
    const uint32_t all = WorkItems::steps(item.w), steps = all - from < 32 ? all - from : 32;
    const bool ends = from + steps == all;
    const uint32_t reused = from == 0 ? WorkItems::reused(item.x) : 0;
    shift -= reused;
    const int b = item.y / args.heads, h = item.y - b * args.heads, h_kv = h / group;
    typename S::LiveSteps live_steps;
#pragma unroll
    for (int w = 0; w < S::tiles; ++w) {
      const int code = E::code(prefetched.entry, w);
      live_steps.of[w] =
          make_int2(__brev(__ballot_sync(kAll, code != kDeadTile)), __brev(__ballot_sync(kAll, code >= 0)));
    }
    const int2 place = E::place(work, prefetched.entry);
    auto load_rows = [&](uint8_t* to, const CUtensorMap* map, uint64_t* barrier) {
      barrier_expect(barrier, S::group_bytes);
      for (int w = 0; w < S::tiles; ++w) {
        const int2 at = work.strided_index((S::tiles * WorkItems::group(item.x) + w) * 64);
        for (int p = 0; p < Panels; ++p)
          load_tile(to + (w * Panels + p) * kTileBytes, map, barrier, 64 * p, at.x, at.y, h, b);
      }
    };
    if (leader) {
      smem.items[round % S::q_stages] = make_int4(item.x, item.y, b,
                                                  int(steps) + (from == 0 ? kFirstRound : 0) + (ends ? kLastRound : 0) +
                                                      (WorkItems::slot(item.w) + 1) * kPartialSlot);
      smem.live_steps[round % S::q_stages] = live_steps;
      load_rows(smem.q.at(round), q_map, full);
    }
    int4 following = item;
    if (ends) {
      if (++turn % 32 == 0) prefetched.item = work.item(turn + lane, number);
      following = broadcast_item(prefetched.item, turn);
    }
    const uint32_t next_from = ends ? 0 : from + 32;
    const int4 next_entry = load_entry<S::tiles>(work, following, next_from);
#pragma unroll 1
    for (uint32_t i = 0; i < steps; ++i, ++step) {
      const int x = __shfl_sync(kAll, place.x, i), y = __shfl_sync(kAll, place.y, i);
      typename S::Codes codes;
#pragma unroll
      for (int w = 0; w < S::tiles; ++w) codes.of[w] = __shfl_sync(kAll, E::code(prefetched.entry, w), i);
      if constexpr (S::biased) codes.place = make_int2(x, y);
      if (!leader) continue;
      auto load = [&](const auto& ring, const CUtensorMap* map) {
        uint64_t* const there = ring.full + step % S::kv_stages;
        if (i < reused) {
          barrier_arrive(there, 1);
          return;
        }
        // The stage is free: behind the reused tiles, its last content belonged to a step at least four back.
        barrier_expect(there, S::tile_bytes);
        for (int p = 0; p < Panels; ++p)
          load_tile(ring.at(step + shift) + p * kTileBytes, map, there, 64 * p, x, y, h_kv, b);
      };
      smem.k.await_empty(step);
      smem.tile_codes[step % S::kv_stages] = codes;
      load(smem.k, k_map);
      smem.v.await_empty(step);
      load(smem.v, v_map);
    }
    if (S::own_results && leader && ends && work.has_previous) {  // last: it waits for the store of the result before
      wait_for_previous();
      smem.out.await_empty(merged);
      load_rows(smem.out.at(merged), previous_map, smem.out.full);
      ++merged;
    }
    item = following;
    prefetched.entry = next_entry;
    from = next_from;
  }
}

}  // namespace hopper
