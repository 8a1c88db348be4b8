// Items of work (parts.h) on Hopper: how a team of two warpgroups walks through its own, and how the rows of one get to global memory.
//
// A warp for each team runs ahead: it reads items and schedule and has TMA fetch queries, keys and values into rings that go on from one item
// to the next. What a warpgroup does not need of a step it leaves out. Results have shared memory of their own and go from there by TMA
// behind the next item's work; what an earlier part left of the same rows comes by TMA too, ahead like queries and keys.
#pragma once
#include "../common/dependent.cuh"
#include "../common/launch.cuh"
#include "../common/roles.cuh"
#include "../common/warpgroup.cuh"
#include "hopper_step.cuh"
#include "hopper_team.cuh"
#include "parts.h"

namespace hopper {

constexpr int kWarpRows = 16;   // of a query tile, which a warp has
constexpr int kNotNeeded = -2;  // the code of a KV tile for a query tile that does not need it

// What all lanes of a warp share, known as such to the compiler, which then keeps it in uniform registers.
__device__ __forceinline__ int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

struct Items {
  const int4* items;
  const int4* joins;
  const int4* schedule;
  float* slots;
  float* lse;  // of every row, in powers of two; nullptr where the mask is one part
  int64_t out_stride[3];
  int rounds, teams;
  int q_modulus, q_length;
  bool later, more;  // merges with rows that are there; leaves rows for a part to come

  __device__ __forceinline__ int4 item(int round, int team) const {
    return round < rounds && team < teams ? items[int64_t(round) * teams + team] : make_int4(-1, 0, 0, 0);
  }
  static __device__ __forceinline__ uint32_t steps(int4 item) { return uint32_t(item.w) % kItemSteps; }
  static __device__ __forceinline__ int slot(int4 item) { return int(uint32_t(item.w) / kItemSteps) - 1; }

  // This thread's share of a partial result.
  template <int Panels> __device__ __forceinline__ float* slot_at(int slot, int half) const {
    return slots + (int64_t(slot) * 2 + half) * ((32 * Panels + 4) * 128) + threadIdx.x % 128;
  }
  template <typename T, int Panels> __device__ __forceinline__ void leave(int slot, int half, const Rows<T, Panels>& rows) const {
    float* const to = slot_at<Panels>(slot, half);
#pragma unroll
    for (int i = 0; i < 32 * Panels; ++i) to[i * 128] = rows.o[i];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      to[(32 * Panels + r) * 128] = rows.sum(r);
      to[(32 * Panels + 2 + r) * 128] = rows.sum(r) > 0.f ? rows.reference[r] : -INFINITY;
    }
  }

  // Where a place lies in the order of residues: index and residue.
  __device__ __forceinline__ int2 index_of(int place) const {
    if (q_modulus == 1) return make_int2(place, 0);
    const uint32_t residue = uint32_t(place) / uint32_t(q_length);
    return make_int2(place - int(residue) * q_length, int(residue));
  }
  __device__ __forceinline__ int row_of(int place) const {
    const int2 at = index_of(place);
    return at.x * q_modulus + at.y;
  }
  static __device__ __forceinline__ int first_row() { return 16 * (threadIdx.x / 32 % 4) + threadIdx.x % 32 / 4; }

  // The log-sum-exp of this thread's two rows by earlier parts, -inf where there is no such row.
  __device__ __forceinline__ void known(const AttentionArgs& args, int head, int q_tile, float (&before)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int place = q_tile * 64 + first_row() + 8 * r;
      before[r] = later && place < args.seq_q ? lse[int64_t(head) * args.seq_q + row_of(place)] : -INFINITY;
    }
  }

  // What this part's rows and those that are there already are to be multiplied by; notes what parts to come have to know.
  template <typename T, int Panels>
  __device__ __forceinline__ void shares(const AttentionArgs& args, int head, int q_tile, const Rows<T, Panels>& rows, const float (&before)[2],
                                         float (&mine)[2], float (&theirs)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      mine[r] = rows.sum(r) > 0.f ? __fdividef(1.f, rows.sum(r)) : 0.f;
      theirs[r] = 0.f;
      if (!lse) continue;
      float now = rows.sum(r) > 0.f ? rows.reference[r] + log2f(rows.sum(r)) : -INFINITY;
      if (later) {
        const float top = fmaxf(before[r], now), shift = top == -INFINITY ? 0.f : top;
        const float old_share = exp2_approx(before[r] - shift), new_share = exp2_approx(now - shift), all = old_share + new_share;
        theirs[r] = all > 0.f ? old_share / all : 0.f;
        mine[r] *= all > 0.f ? new_share / all : 0.f;
        now = all > 0.f ? shift + log2f(all) : -INFINITY;
      }
      const int place = q_tile * 64 + first_row() + 8 * r;
      __syncwarp();  // all lanes of the row have read what it was
      if (more && place < args.seq_q && threadIdx.x % 4 == 0) lse[int64_t(head) * args.seq_q + row_of(place)] = now;
    }
  }

  // This thread's elements of the result to the tile, where those of earlier parts may be.
  template <typename T, int Panels>
  __device__ __forceinline__ void put(uint8_t* tile, const Rows<T, Panels>& rows, const float (&mine)[2], const float (&theirs)[2]) const {
    const int first = first_row(), t2 = 2 * (threadIdx.x % 4);
#pragma unroll
    for (int j = 0; j < 8 * Panels; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = first + 8 * r;
        T* const two = reinterpret_cast<T*>(tile + j / 8 * kTileBytes + row * 128 + ((j % 8 ^ (row & 7)) << 4) + 2 * t2);
        float x[2] = {rows.o[4 * j + 2 * r] * mine[r], rows.o[4 * j + 2 * r + 1] * mine[r]};
        if (later) {
          x[0] += to_float(two[0]) * theirs[r];
          x[1] += to_float(two[1]) * theirs[r];
        }
        *reinterpret_cast<uint32_t*>(two) = tensor_core::pack<T>(x[0], x[1]);
      }
  }

  // The rows of a query tile to out, by all threads of a warpgroup, whose barrier has this number; head: of all batch entries; tile: shared
  // memory of the warpgroup that nobody reads any more.
  template <typename T, int Panels>
  __device__ __forceinline__ void store(const AttentionArgs& args, int head, int q_tile, uint8_t* tile, int barrier, const Rows<T, Panels>& rows) const {
    float before[2], mine[2], theirs[2];
    known(args, head, q_tile, before);
    shares(args, head, q_tile, rows, before, mine, theirs);
    T* const out = static_cast<T*>(args.out) + head / args.heads * out_stride[0] + head % args.heads * out_stride[1];
    // Through shared memory, so that rows are read and written in whole pieces of 16 bytes.
    auto each_piece = [&](auto visit) {
#pragma unroll
      for (int i = 0; i < 4 * Panels; ++i) {
        const int n = i * 128 + threadIdx.x % 128, c = n % (8 * Panels), r = n / (8 * Panels), place = q_tile * 64 + r;
        if (place < args.seq_q && c * 8 < args.head_dim)
          visit(*reinterpret_cast<uint4*>(tile + c / 8 * kTileBytes + r * 128 + ((c % 8 ^ (r & 7)) << 4)),
                *reinterpret_cast<uint4*>(out + row_of(place) * out_stride[2] + c * 8));
      }
    };
    warpgroup_barrier_of_many(barrier);
    if (later) {
      each_piece([](uint4& here, const uint4& there) { here = there; });
      warpgroup_barrier_of_many(barrier);
    }
    put(tile, rows, mine, theirs);
    warpgroup_barrier_of_many(barrier);
    each_piece([](const uint4& here, uint4& there) { there = here; });
  }

  // The same by TMA, each warp its own rows, so that none waits for another; n counts the fillings of the ring out, which in a later part the
  // loading thread makes; before: known().
  template <typename T, int Panels, typename Ring>
  __device__ __forceinline__ void stage(const AttentionArgs& args, const CUtensorMap* out_map, int head, int batch, int q_tile, const Ring& out, uint32_t n,
                                        const Rows<T, Panels>& rows, const float (&before)[2]) const {
    uint8_t* const tile = out.at(n) + q_tile % 2 * (Panels * kTileBytes);
    const bool speaker = threadIdx.x % 32 == 0;
    float mine[2], theirs[2];
    shares(args, head, q_tile, rows, before, mine, theirs);
    if (later) {
      out.await_full(n);
    } else {
      if (speaker) boxes_read<0>();  // the result before this one has left
      __syncwarp();
    }
    put(tile, rows, mine, theirs);
    fence_async_proxy();
    __syncwarp();
    if (!speaker) return;
    const int first = first_row();
    const int2 at = index_of(q_tile * 64 + first);
    for (int p = 0; p < Panels; ++p)
      store_tile(tile + p * kTileBytes + first * 128, out_map, 64 * p, at.x, at.y, head - batch * args.heads, batch);
    boxes_commit();
    if (!later) return;
    boxes_read<0>();
    barrier_arrive(out.empty, 1);
  }
};

// By one thread: what a team needs, ahead of it; number: of all teams; before_map: of what earlier parts left, by tiles. Items and entries of
// the schedule are asked for one ahead, because each is half a microsecond away, and the first before the kernel in front is done: they were
// complete when the plan was (parts.py waits for that).
template <int Panels, typename S>
__device__ __forceinline__ void load_items(const CUtensorMap* q_map, const CUtensorMap* k_map, const CUtensorMap* v_map, const CUtensorMap* before_map,
                                           const AttentionArgs& args, const Items& work, const Team<S>& team, int number) {
  const int group = args.heads / args.heads_kv;
  auto entry_of = [&](int4 item, uint32_t step) {
    return item.x >= 0 && step < Items::steps(item) ? work.schedule[item.z + step] : make_int4(0, 0, 0, 0);
  };
  uint32_t step = 0, merged = 0;
  int4 item = work.item(0, number), entry = entry_of(item, 0);
  if (!work.later) wait_for_previous();
  for (uint32_t round = 0;; ++round) {
    team.q.await_empty(round);
    uint64_t* const full = team.q.full + round % S::q_slots;
    const int b = item.y / args.heads, h = item.y - b * args.heads, h_kv = h / group;
    team.items[round % S::q_slots] = make_int4(item.x, item.y, b, item.w);  // the warpgroups do not read the schedule
    if (item.x < 0) {  // no more
      barrier_arrive(full, 1);
      return;
    }
    const int4 next_item = work.item(round + 1, number);
    const uint32_t steps = Items::steps(item);
    auto load_rows = [&](uint8_t* to, const CUtensorMap* map, uint64_t* barrier) {
      barrier_expect(barrier, 2 * S::tile_bytes);
      for (int w = 0; w < 2; ++w) {
        const int2 at = work.index_of((2 * item.x + w) * 64);
        for (int p = 0; p < Panels; ++p) load_tile(to + (w * Panels + p) * kTileBytes, map, barrier, 64 * p, at.x, at.y, h, b);
      }
    };
    load_rows(team.q.at(round), q_map, full);
    for (uint32_t i = 0; i < steps; ++i, ++step) {
      const int4 now = entry;
      entry = i + 1 < steps ? entry_of(item, i + 1) : entry_of(next_item, 0);
      auto load = [&](const auto& ring, const CUtensorMap* map) {
        barrier_expect(ring.full + step % S::kv_slots, S::tile_bytes);
        for (int p = 0; p < Panels; ++p)
          load_tile(ring.at(step) + p * kTileBytes, map, ring.full + step % S::kv_slots, 64 * p, now.x, now.y, h_kv, b);
      };
      team.k.await_empty(step);
      team.codes[step % S::kv_slots] = make_int2(now.z, now.w);
      load(team.k, k_map);
      team.v.await_empty(step);
      load(team.v, v_map);
    }
    if (steps == 0) entry = entry_of(next_item, 0);
    if (work.later && Items::slot(item) < 0) {  // last, because it waits until the result before it has left
      wait_for_previous();
      team.out.await_empty(merged);
      load_rows(team.out.at(merged), before_map, team.out.full);
      ++merged;
    }
    item = next_item;
  }
}

// Warpgroup wg of the block: its query tile of every item of its team.
template <typename T, int Panels, typename S>
__device__ __forceinline__ void take_items(const AttentionArgs& args, const CUtensorMap* out_map, const Items& work, const Team<S>& team, int wg) {
  const int half = wg % 2;
  const float factor = args.scale * kLog2e;
  const uint64_t first_q = tile_descriptor(team.q.first), first_k = tile_descriptor(team.k.first);
  const uint64_t first_v = Rows<T, Panels>::values_descriptor(team.v.first, team.ones);
  constexpr uint32_t kTile = S::tile_bytes >> 4;
  uint32_t step = 0, stored = 0;
  for (uint32_t round = 0;; ++round) {
    const uint64_t q = moved_descriptor(first_q, (round % S::q_slots * 2 + half) * kTile);
    team.q.await_full(round);
    const int4 item = team.items[round % S::q_slots];
    if (uniform(item.x) < 0) break;
    const uint32_t end = step + uniform(Items::steps(item));
    const int slot = uniform(Items::slot(item));
    float before[2];  // asked for long before it is needed
    if (work.later) {
      if (round == 0) wait_for_previous();
      if (slot < 0) work.known(args, uniform(item.y), 2 * uniform(item.x) + half, before);
    }
    Rows<T, Panels> rows;
    rows.clear();
    float x[32];
    uint32_t weights[4][4];
    // What our rows need of a step's tile, which is there then: looked up a step ahead, with the bits of a partial tile.
    int ahead = 0;
    uint32_t bits_ahead = 0;
    auto look = [&](uint32_t at) {
      if (at == end) return;
      team.k.await_full(at);
      ahead = uniform(reinterpret_cast<const int*>(team.codes + at % S::kv_slots)[half]);
      if (ahead >= 0) bits_ahead = args.fragments[int64_t(ahead) * 128 + threadIdx.x % 128];
    };
    look(step);
    auto start_scores = [&] { rows.start_scores(x, q, moved_descriptor(first_k, step % S::kv_slots * kTile)); };
    auto start_context = [&](uint32_t of) {
      team.v.await_full(of);
      rows.start_context(weights, moved_descriptor(first_v, of % S::kv_slots * Rows<T, Panels>::values_slot));
    };
    auto finish_context = [&](uint32_t of) {
      wgmma_wait<0>();
      fence_registers(rows.o);
      team.v.release(of);
    };
    // Of scores that are being computed, while Pending other products may go on; bits: of a partial tile.
    auto finish_scores = [&](auto pending, int code, uint32_t bits) {
      wgmma_wait<decltype(pending)::value>();
      fence_registers(x);
      if (code >= 0) rows.mask(x, bits);
    };
    float part[2];
    bool begun = false;  // there is a context
    while (step < end) {
      // Through a shuffle, or ptxas 13.0 takes the warp's threads to be at different steps and spills.
      int code = uniform(ahead);
      if (code == kNotNeeded) {
        team.k.release(step);
        team.v.await_full(step);
        team.v.release(step);
        look(++step);
        continue;
      }
      uint32_t bits = bits_ahead;
      start_scores();
      look(step + 1);
      finish_scores(std::integral_constant<int, 0>(), code, bits);
      bool again;
      do {  // with scores that may ask for another reference
        again = false;
        team.k.release(step);
        float shrink[2];
        rows.follow(x, factor, shrink);
        rows.exponentials(x, part);
        if (begun) rows.rescale(shrink);
        rows.add(part);
        rows.pack(weights, x);
        begun = true;
        for (++step; step < end; ++step) {  // a context beside the next scores
          code = uniform(ahead);
          if (code == kNotNeeded) break;
          bits = bits_ahead;
          start_scores();
          start_context(step - 1);
          look(step + 1);
          finish_scores(std::integral_constant<int, 1>(), code, bits);
          const bool grows = rows.begins(code >= 0 ? bits : ~0u) | rows.exponents(x, factor);
          rows.exponentials(x, part);
          fence_registers(x);
          // The context is waited for behind the exponentials in either branch: ptxas 13.0 would move a wait before the branch further up. Whether
          // scores grew is known only here, so that nothing waits for it; seldom do they, and are needed again.
          if (__any_sync(0xffffffffu, grows)) {
            wgmma_wait_in_branch<1>();
            fence_registers(rows.o);
            team.v.release(step - 1);
            rows.scores_again(x, team.q.at(round) + half * S::tile_bytes, team.k.at(step), args.head_dim & 1);
            if (code >= 0) rows.mask(x, args.fragments[int64_t(code) * 128 + threadIdx.x % 128]);
            again = true;
            break;
          }
          finish_context(step - 1);
          team.k.release(step);
          rows.add(part);
          rows.pack(weights, x);
        }
      } while (again);
      start_context(step - 1);
      finish_context(step - 1);
    }
    rows.total();
    team.q.release(round);
    if (slot >= 0) work.template leave<T, Panels>(slot, half, rows);
    else work.template stage<T, Panels>(args, out_map, uniform(item.y), uniform(item.z), 2 * uniform(item.x) + half, team.out, stored++, rows, before);
  }
  boxes_read<0>();  // shared memory is this block's until then
}

}  // namespace hopper
