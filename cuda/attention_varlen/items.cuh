// Items of packed sequences for persistent blocks, and the producer warp that draws them and loads what they need.
#pragma once
#include "../attention/hopper_shared.cuh"
#include "../common/tickets.cuh"
#include "sequences.cuh"

namespace varlen {
using namespace hopper;

constexpr int kRows = 128;  // of an item

// Items are numbered by slot (sequences.cuh) and head.
struct Items {
  uint64_t* words;
  uint64_t tag;
  int64_t count;
};

// Of an item: what it works on, and how many KV tiles its query tiles need. They come in order, within a window in the
// reverse order: where there are as many keys as queries, the last tile has a key of every row if the window ends at
// the diagonal or a multiple of 64 keys behind it, while the first mostly has not, and a row's first key costs the
// scores of its step again (consume() in v4_persistent.cu).
struct PackedItem {
  Work work;
  int head, steps;  // head -1: the end
};

// Where the KV tiles end that the query tile from row `first` on needs; 0: it needs none.
template <typename Args> __device__ __forceinline__ int tiles_end(const Args& args, const Work& w, int first) {
  const int last = first + 63 < w.queries ? first + 63 : w.queries - 1;
  const int keys = first < w.queries ? keys_of_row(args, w, last) : 0;
  return keys > 0 ? (keys + 63) / 64 : 0;
}

// The next item of worker `worker` of so many, whose own number is the first; by a whole warp. Slots without rows are
// passed over. Workers that begin draw to the end, so they draw as many numbers as there are items.
template <typename Args> __device__ __forceinline__ PackedItem next_item(const Args& args, const Items& items,
                                                                         int worker, int workers, bool first) {
  for (;; first = false) {
    int64_t number = worker;
    if (!first && threadIdx.x % 32 == 0)
      number = workers + int64_t(draw(items.words, items.tag, uint64_t(items.count)));
    number = first ? number : from_lane(number, 0);
    if (number >= items.count) return {{}, -1, 0};
    const int slot = int(number / args.heads);
    const Work w = work_of<kRows>(args, slot);
    if (w.row >= w.queries) continue;
    const int one = tiles_end(args, w, w.row), two = tiles_end(args, w, w.row + 64);
    int steps = one > two ? one : two;
    if constexpr (kWindowed<Args>)
      if (steps > 0) steps -= first_of_row(args, w, w.row) / 64;
    return {w, int(number - int64_t(slot) * args.heads), steps};
  }
}

// By the producer warp of a team.
template <int Panels, typename S, typename Args>
__device__ __forceinline__ void produce(const CUtensorMap* q_map, const CUtensorMap* k_map, const CUtensorMap* v_map,
                                        const Args& args, const Items& items, const SharedStorage<S>& smem, int worker,
                                        int workers) {
  const bool leader = threadIdx.x % 32 == 0;
  static_assert(sizeof(typename S::LiveSteps) == sizeof(int4));  // whose place the second half of an item takes
  const int group = args.heads / args.heads_kv;
  uint32_t step = 0;
  PackedItem item = worker < items.count ? next_item(args, items, worker, workers, true) : PackedItem{{}, -1, 0};
  for (uint32_t round = 0;; ++round) {
    smem.q.await_empty(round);
    uint64_t* const full = smem.q.full + round % S::q_stages;
    const Work w = item.work;
    if (leader) {
      smem.items[round % S::q_stages] = make_int4(item.head, w.row, item.steps, w.keys);
      reinterpret_cast<int4*>(smem.live_steps)[round % S::q_stages] = make_int4(w.q_first, w.queries, w.k_first, 0);
      if (item.head < 0) {
        barrier_arrive(full, 1);
      } else {
        barrier_expect(full, 2 * S::tile_bytes);
        for (int half = 0; half < 2; ++half)
          for (int p = 0; p < Panels; ++p)
            load_tile(smem.q.at(round) + (half * Panels + p) * kTileBytes, q_map, full, 64 * p,
                      w.q_first + w.row + 64 * half, item.head, 0);
      }
    }
    if (item.head < 0) return;
    const int steps = item.steps, head_kv = item.head / group;
    const int last = kWindowed<Args> ? first_of_row(args, w, w.row) / 64 + steps - 1 : 0;
    item = next_item(args, items, worker, workers, false);  // memory is half a microsecond away
#pragma unroll 1
    for (int i = 0; i < steps; ++i, ++step) {
      const int tile = kWindowed<Args> ? last - i : i;
      const auto load = [&](const auto& ring, const CUtensorMap* map) {
        ring.await_empty(step);
        if (!leader) return;
        uint64_t* const there = ring.full + step % S::kv_stages;
        barrier_expect(there, S::tile_bytes);
        for (int p = 0; p < Panels; ++p)
          load_tile(ring.at(step) + p * kTileBytes, map, there, 64 * p, w.k_first + 64 * tile, head_kv, 0);
      };
      load(smem.k, k_map);
      load(smem.v, v_map);
    }
  }
}

// What the producer says of a round.
template <typename S> __device__ __forceinline__ PackedItem read_item(const SharedStorage<S>& smem, uint32_t round) {
  const int4 what = smem.items[round % S::q_stages];
  const int4 where = reinterpret_cast<const int4*>(smem.live_steps)[round % S::q_stages];
  const Work work{uniform(where.x), uniform(where.y), uniform(where.z), uniform(what.w), uniform(what.y)};
  return {work, uniform(what.x), uniform(what.z)};
}

}  // namespace varlen
