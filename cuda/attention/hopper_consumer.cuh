// Consumer warpgroup of attention on work items: computes its query tile of each item and skips the KV tiles that are
// dead for it.
#pragma once
#include "../common/dependent.cuh"
#include "hopper_items_bias.cuh"
#include "hopper_producer.cuh"
#include "hopper_step.cuh"

namespace hopper {

// By warpgroup wg of the block: its query tile of every work item of its team of warpgroups.
template <typename T, int Panels, typename S, typename Args>
__device__ __forceinline__ void consume_work_items(const Args& args, const CUtensorMap* out_map, const WorkItems& work,
                                                   const SharedStorage<S>& smem, int wg) {
  const int tile = wg % S::tiles, worker = wg / S::tiles * gridDim.x + blockIdx.x;  // of the group; of the grid
  work.begin_tickets<S::tiles>(worker, tile);
  const float factor = to_powers_of_two(args);
  const uint64_t first_q = tile_descriptor(smem.q.first), first_k = tile_descriptor(smem.k.first);
  const uint64_t first_v = Rows<T, Panels>::values_descriptor(smem.v.first, smem.ones);
  constexpr uint32_t kTile = S::tile_bytes >> 4;
  uint32_t step = 0, stored = 0;
  bool storing = false;  // without own_results: the query stage of the round before holds results, TMA still reads them
  uint32_t shift = 0;    // stage of a step's tiles, relative to the step (hopper_producer.cuh)
  Rows<T, Panels, kBiasedItems<Args>> rows;
  uint32_t biases = 0;       // tiles of the bias so far
  bool has_context = false;  // rows.o holds a product
  unsigned broken = 0;       // not 0: this thread stored a NaN
  float before[2];           // log-sum-exp of earlier parts, loaded early
  for (uint32_t round = 0;; ++round) {
    const uint64_t q = moved_descriptor(first_q, (round % S::q_stages * S::tiles + tile) * kTile);
    smem.q.await_full(round);
    const int4 item = smem.items[round % S::q_stages];
    const int2 masks = smem.live_steps[round % S::q_stages].of[tile];
    if (uniform(item.x) < 0) break;
    const int group = WorkItems::group(uniform(item.x)), what = uniform(item.w), slot = what / kPartialSlot - 1;
    uint32_t live = uniform(masks.x), partial = uniform(masks.y);  // the top bit is this step's
    auto top_bit = [](uint32_t bits) { return int(bits) < 0; };
    const uint32_t end = step + what % kRoundSteps;
    if (what & kFirstRound) {
      shift -= WorkItems::reused(uniform(item.x));
      rows.clear();
      has_context = false;
    }
    if (work.has_previous) {
      if (round == 0) wait_for_previous();
      if (what & kLastRound)
        work.previous_lse(args, uniform(item.y), (S::tiles * group + tile) * 64 + WorkItems::warp_rows(), before);
    }
    auto release_stored = [&smem, &storing, round] {
      if (S::own_results || !storing) return;
      storing = false;
      if (threadIdx.x % 32) return;
      await_tma_reads<0>();
      barrier_arrive(smem.q.empty + (round - 1) % S::q_stages, 1);
    };
    float x[32];
    uint32_t weights[4][4];
    constexpr bool kMaskAhead = kItemBias<Args> != ItemBias::elements;  // else there is no register for it
    uint32_t next_bits = 0;
    // Waits for a step's keys and loads the mask bitmap of its tile if that is partial, one step ahead.
    auto prefetch_mask = [&](uint32_t at, uint32_t partial) {
      if (at == end) return;
      smem.k.await_full(at);
      if (kMaskAhead && top_bit(partial)) {
        const int code = smem.tile_codes[at % S::kv_stages].of[tile];
        next_bits = args.fragments[int64_t(code) * 128 + threadIdx.x % 128];
      }
    };
    prefetch_mask(step, partial);
    auto start_scores = [&] {
      rows.start_scores(x, q, moved_descriptor(first_k, (step + shift) % S::kv_stages * kTile));
    };
    auto add_elements = [&] {
      if constexpr (S::biased) {
        const int4 now =
            smem.items[again(int(round)) % S::q_stages];  // in registers from step to step it would cost spills
        const int head = uniform(now.y), b = uniform(now.z);
        const int position = (S::tiles * WorkItems::group(uniform(now.x)) + tile) * 64;
        const int64_t first = b * args.bias_stride[0] + (head - b * args.heads) * args.bias_stride[1];
        const int2 place = smem.tile_codes[step % S::kv_stages].place;
        if constexpr (S::bias_tiles) {
          const int row = WorkItems::first_row(position + WorkItems::warp_rows()), key = place.x + threadIdx.x % 4 * 2;
          const auto row_at = [&](int at) {
            return (at < args.seq_q ? work.row_of(at) : work.row_of(args.seq_q - 1)) * args.bias_stride[2];
          };
          add_bias_again(x, args.bias_scale, static_cast<const T*>(args.bias) + first + row_at(row) + key,
                         row_at(row + 8) - row_at(row), args.seq_k - key);
        } else {
          float* const staged =
              reinterpret_cast<float*>(smem.out.first + (4 * tile + threadIdx.x / 32 % 4) * kStagedBytes);
          add_elements_of_bias<T>(x, args, work, first, position, place, staged);
        }
      }
    };
    auto cap_and_mask = [&](uint32_t bits) {
      if constexpr (kScored<Args>) cap_scores(x, args);
      if constexpr (S::bias_tiles) {
        const auto ring = bias_ring(smem, tile);
        ring.await_full(biases);
        add_tile_of_bias<T>(x, args.bias_scale, ring.at(biases), args.one_row);
        ring.release(biases++);
      } else {
        add_elements();
      }
      if (!top_bit(partial)) return;
      if constexpr (!kMaskAhead) {
        const int code = smem.tile_codes[step % S::kv_stages].of[tile];
        bits = args.fragments[int64_t(code) * 128 + threadIdx.x % 128];
      }
      rows.mask(x, bits);
    };
    auto start_context = [&](uint32_t of) {
      smem.v.await_full(of);
      rows.start_context(weights,
                         moved_descriptor(first_v, (of + shift) % S::kv_stages * Rows<T, Panels>::values_stage));
    };
    auto finish_context = [&](uint32_t of) {
      wgmma_wait<0>();
      fence_registers(rows.o);
      smem.v.release(of);
    };
    auto next = [&] {
      ++step;
      live <<= 1;
      partial <<= 1;
    };
    float part[2];
    while (step < end) {
      if (!top_bit(live)) {
        smem.k.release(step);
        smem.v.await_full(step);
        smem.v.release(step);
        next();
        prefetch_mask(step, partial);
        continue;
      }
      uint32_t bits = next_bits;
      start_scores();
      prefetch_mask(step + 1, partial << 1);
      release_stored();
      wgmma_wait<0>();
      fence_registers(x);
      cap_and_mask(bits);
      bool again;
      do {  // softmax that may raise the rows' reference
        again = false;
        smem.k.release(step);
        float shrink[2];
        rows.update_reference(x, factor, shrink);
        rows.template exponentials<0>(x, part);
        rows.template exponentials<1>(x, part);
        if (has_context) rows.rescale(shrink);
        rows.add(part);
        rows.pack(weights, x);
        has_context = true;
        next();
        for (; top_bit(live); next()) {  // P V of one step overlaps with Q K^T of the next
          bits = next_bits;
          start_scores();
          start_context(step - 1);
          prefetch_mask(step + 1, partial << 1);
          wgmma_wait<1>();
          fence_registers(x);
          if constexpr (kItemBias<Args> == ItemBias::elements) finish_context(step - 1);  // loads need its registers
          cap_and_mask(bits);
          // Exponentials in two halves: the wait for P V stands between them.
          rows.template exponentiate<0>(x, factor, part);
          fence_registers(x);
          if constexpr (kItemBias<Args> != ItemBias::elements) finish_context(step - 1);
          rows.template exponentiate<1>(x, factor, part);
          rows.pack(weights, x);
          // Check for growth late so that no instruction stalls on it; rare: then recompute the scores.
          if (__any_sync(0xffffffffu, rows.exceed_ceiling(weights))) {
            rows.recompute_scores(x, smem.q.at(round) + tile * S::tile_bytes, smem.k.at(step + shift),
                                  args.head_dim & 1);
            if constexpr (kScored<Args>) cap_scores(x, args);
            add_elements();
            if (top_bit(partial)) {
              const int code = smem.tile_codes[step % S::kv_stages].of[tile];
              rows.mask(x, args.fragments[int64_t(code) * 128 + threadIdx.x % 128]);
            }
            again = true;
            break;
          }
          smem.k.release(step);
          rows.add(part);
        }
      } while (again);
      start_context(step - 1);
      finish_context(step - 1);
    }
    release_stored();
    if (S::own_results || !(what & kLastRound)) smem.q.release(round);
    if (!(what & kLastRound)) continue;
    rows.total();
    if constexpr (!S::own_results && S::tiles == 3)  // all products of the warpgroup have read the queries
      warpgroup_barrier_of_three(wg);
    else if constexpr (!S::own_results)
      warpgroup_barrier_of_four(wg);
    constexpr float kFactor = kBiasedItems<Args> ? kLog2e : 1.f;
    if (__builtin_expect(slot >= 0, false) &&
        !work.partials.template complete<Panels, S::tiles>(slot, tile, kFactor, rows)) {
      if constexpr (!S::own_results) {
        smem.q.release(round);
      } else if (work.has_previous) {
        smem.out.await_full(stored);
        smem.out.release(stored++);
      }
      continue;
    }
    if constexpr (S::own_results)
      broken |= work.template store_by_tma<T, Panels, S::tiles>(
          args, out_map, uniform(item.y), uniform(item.z), S::tiles * group + tile, smem.out, stored++, rows, before);
    else
      broken |= work.template store_in_place<T, Panels, S::tiles>(
          args, out_map, uniform(item.y), uniform(item.z), S::tiles * group + tile, smem.q.at(round), rows, before);
    storing = true;
  }
  await_tma_reads<0>();  // the TMA stores read shared memory until then
  if (__any_sync(row_again::kAll, broken)) work.repair<T, Panels, S::tiles>(args, worker, tile);
}

}  // namespace hopper
