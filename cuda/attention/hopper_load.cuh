// The warp that runs ahead of a team: it reads items and schedule and has TMA fetch queries, keys and values into rings
// that go on from one item to the next (hopper_team.cuh), as soon as the team has released a slot.
#pragma once
#include "../common/dependent.cuh"
#include "hopper_items.cuh"
#include "hopper_team.cuh"

namespace hopper {

constexpr int kNotNeeded = -2;  // the code of a KV tile for a query tile that does not need it

// A round is an item, or 32 steps of one that has more. What items[] of its slot of queries says: what the item does
// (parts.h), -1 where no more follow, batch entry * heads + head, batch entry, and a number made of
constexpr int kRoundSteps = 64;           // its steps, in the bits below,
constexpr int kBegins = 64, kEnds = 128;  // whether the item begins and whether it ends with it
constexpr int kSlots = 256;               // and 1 + slot of the item's partial result, from here on

// What each lane of a loading warp asks memory for ahead of time, because that is half a microsecond away: an item and
// an entry of the schedule.
struct Ahead {
  int4 item, entry;
};

__device__ __forceinline__ int4 item_of(int4 mine, int turn) {
  constexpr uint32_t kAll = 0xffffffff;
  const int from = turn % 32;
  return make_int4(__shfl_sync(kAll, mine.x, from), __shfl_sync(kAll, mine.y, from), __shfl_sync(kAll, mine.z, from),
                   __shfl_sync(kAll, mine.w, from));
}

__device__ __forceinline__ int4 entry_of(const Items& work, int4 item, uint32_t from) {
  const uint32_t at = from + threadIdx.x % 32;
  return item.x >= 0 && at < Items::steps(item.w) ? work.schedule[item.z + at]
                                                  : make_int4(0, 0, kNotNeeded, kNotNeeded);
}

__device__ __forceinline__ Ahead first_ahead(const Items& work, int number) {
  const int4 mine = work.item(threadIdx.x % 32, number);
  return {mine, entry_of(work, item_of(mine, 0), 0)};
}

// By a warp: what a team needs, ahead of it; number: of all teams; before_map: of what earlier parts left, by tiles.
// Each lane has one of the next 32 items, and one of the entries of this and of the next round, because memory is half
// a microsecond away; the first are asked for before the kernel in front is done: they were complete when the plan was
// (parts.py waits for that).
template <int Panels, typename S>
__device__ __forceinline__ void load_items(const CUtensorMap* q_map, const CUtensorMap* k_map, const CUtensorMap* v_map,
                                           const CUtensorMap* before_map, const AttentionArgs& args, const Items& work,
                                           const Team<S>& team, int number, Ahead ahead) {
  constexpr uint32_t kAll = 0xffffffff;
  const int lane = threadIdx.x % 32, group = args.heads / args.heads_kv;
  const bool leader = lane == 0;
  int turn = 0;
  uint32_t step = 0, merged = 0, from = 0;
  uint32_t shift = 0;  // a step's tiles lie in slot step + shift of the rings: those that are kept stay where they are
  int4 item = item_of(ahead.item, 0);
  if (!work.later) wait_for_previous();
  for (uint32_t round = 0;; ++round) {
    team.q.await_empty(round);
    uint64_t* const full = team.q.full + round % S::q_slots;
    if (item.x < 0) {  // no more
      if (leader) {
        team.items[round % S::q_slots] = item;
        barrier_arrive(full, 1);
      }
      return;
    }
    const uint32_t all = Items::steps(item.w), steps = all - from < 32 ? all - from : 32;
    const bool ends = from + steps == all;
    const uint32_t kept = from == 0 ? Items::kept(item.x) : 0;
    shift -= kept;
    const int b = item.y / args.heads, h = item.y - b * args.heads, h_kv = h / group;
    const int4 needs = make_int4(
        __brev(__ballot_sync(kAll, ahead.entry.z != kNotNeeded)), __brev(__ballot_sync(kAll, ahead.entry.z >= 0)),
        __brev(__ballot_sync(kAll, ahead.entry.w != kNotNeeded)), __brev(__ballot_sync(kAll, ahead.entry.w >= 0)));
    auto load_rows = [&](uint8_t* to, const CUtensorMap* map, uint64_t* barrier) {
      barrier_expect(barrier, 2 * S::tile_bytes);
      for (int w = 0; w < 2; ++w) {
        const int2 at = work.index_of((2 * Items::pair(item.x) + w) * 64);
        for (int p = 0; p < Panels; ++p)
          load_tile(to + (w * Panels + p) * kTileBytes, map, barrier, 64 * p, at.x, at.y, h, b);
      }
    };
    if (leader) {
      team.items[round % S::q_slots] =
          make_int4(item.x, item.y, b,
                    int(steps) + (from == 0 ? kBegins : 0) + (ends ? kEnds : 0) + (Items::slot(item.w) + 1) * kSlots);
      team.needs[round % S::q_slots] = needs;
      load_rows(team.q.at(round), q_map, full);
    }
    int4 following = item;
    if (ends) {
      if (++turn % 32 == 0) ahead.item = work.item(turn + lane, number);
      following = item_of(ahead.item, turn);
    }
    const uint32_t further = ends ? 0 : from + 32;
    const int4 next_entry = entry_of(work, following, further);
#pragma unroll 1
    for (uint32_t i = 0; i < steps; ++i, ++step) {
      const int x = __shfl_sync(kAll, ahead.entry.x, i), y = __shfl_sync(kAll, ahead.entry.y, i);
      const int2 code = make_int2(__shfl_sync(kAll, ahead.entry.z, i), __shfl_sync(kAll, ahead.entry.w, i));
      if (!leader) continue;
      auto load = [&](const auto& ring, const CUtensorMap* map) {
        uint64_t* const there = ring.full + step % S::kv_slots;
        if (i < kept) {
          barrier_arrive(there, 1);
          return;
        }
        // Free: behind the tiles kept, what it held before was of a step four or more before this one.
        barrier_expect(there, S::tile_bytes);
        for (int p = 0; p < Panels; ++p)
          load_tile(ring.at(step + shift) + p * kTileBytes, map, there, 64 * p, x, y, h_kv, b);
      };
      team.k.await_empty(step);
      team.codes[step % S::kv_slots] = code;
      load(team.k, k_map);
      team.v.await_empty(step);
      load(team.v, v_map);
    }
    if (leader && ends && work.later &&
        Items::slot(item.w) < 0) {  // last, because it waits until the result before it has left
      wait_for_previous();
      team.out.await_empty(merged);
      load_rows(team.out.at(merged), before_map, team.out.full);
      ++merged;
    }
    item = following;
    ahead.entry = next_entry;
    from = further;
  }
}

}  // namespace hopper
