// Hopper, 128 keys a step: a schedule made beforehand, row sums by the tensor cores, few query rows shared by
// warpgroups.
// archs: sm_90a
// expects: HGMMA UTMALDG
// takes: fp16 bf16, d<=128, scale>0, tma, softcap+sinks, score
// plan: schedule
// tiles: 1 per block, 1 block per SM, up to 1 tile per SM, from 3 steps
// tiles: 1 per block, 2 blocks per SM, up to 2 tiles per SM, from 2 steps
// tiles: 1 per block, 2 blocks per SM, up to 4 tiles per SM, from 6 steps
// tiles: 2 per block, 2 blocks per SM
//
// A step is two KV tiles of the list that two neighbouring query tiles share. Either each of the two warpgroups of a
// block has one of these query tiles, or (Split) all warpgroups have the same one and take turns in its steps; their
// results are then merged in a fixed order. Keys and values of steps arrive by TMA in a ring each; the last warp to
// release a slot refills it, so there is no producer warp and nobody waits for an empty slot. Up to 64 columns a step
// is serial, and the other warpgroups of the multiprocessor fill the tensor cores meanwhile; above, where only two fit,
// O += P V overlaps with the next softmax. Up to 64 columns V is followed by a tile of ones, whose columns of the
// product are the sums of the rows. A bias is fetched a step ahead (hopper_bias.cuh).
#include "../common/dependent.cuh"
#include "../common/launch.cuh"
#include "hopper_bias.cuh"
#include "hopper_forward.cuh"
#include "hopper_launch.cuh"
#include "hopper_merge.cuh"
#include "hopper_rings.cuh"
#include "hopper_schedule.cuh"
#include "hopper_scored.cuh"
#include "hopper_wide_pipeline.cuh"
#include "score.cuh"

namespace {
using namespace hopper;

constexpr int kMaxTiles = 2048;  // of keys

// Scores in x by the expression of this build, times scale before it. tiles: the step's two KV tiles; first_column: of
// the thread.
__device__ __forceinline__ void express_scores(float (&x)[64], float scale, const ExpressedRow (&rows)[2], int2 tiles,
                                               int first_column) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int first = 64 * (n ? tiles.y : tiles.x) + first_column;
    const float first_float = float(first);
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int column = 8 * (i / 4) + (i & 1);
      float& score = x[32 * n + i];
      score = rows[i / 2 % 2](score * scale, first + column, first_float, float(column));
    }
  }
}

// Args: AttentionArgs, or ScoredArgs with a soft-cap, an expression or sinks, or BiasedArgs.
template <typename T, int Panels, int WG, bool Split, typename Args>
__global__ void __launch_bounds__(128 * WG, ScheduledShape<Panels, WG, Split>::blocks_per_sm) attention_scheduled(
    const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
    const __grid_constant__ CUtensorMap v_map, const __grid_constant__ Args args, int q_blocks) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = ScheduledShape<Panels, WG, Split, kPieces<Args>>;
  constexpr int KSlots = S::k_slots, VSlots = S::v_slots, Acc = S::accumulators;
  extern __shared__ uint8_t raw[];
  uint8_t* shared = raw + (1024 - shared_address(raw) % 1024) % 1024;
  uint8_t* k_ring = shared + S::q_bytes;
  uint8_t* v_ring = k_ring + KSlots * S::slot_bytes;
  uint8_t* ones = v_ring + VSlots * S::slot_bytes;
  uint8_t* parked = ones + S::ones_bytes;
  uint64_t* full_q = reinterpret_cast<uint64_t*>(parked + S::bias_bytes);
  uint64_t* full_k = full_q + 1;
  uint64_t* full_v = full_k + KSlots;
  uint64_t* free_k = full_v + VSlots;
  uint64_t* free_v = free_k + KSlots;
  int4* schedule = reinterpret_cast<int4*>(full_q + 32);  // header, then two for each step

  const int warp = uniform(threadIdx.x / 32), lane = threadIdx.x % 32, wg = warp / 4;
  // Heavy rows first within a head: the first block holds the global tokens, and causal rows grow towards the end.
  const int turn = blockIdx.x % q_blocks, bh = blockIdx.x / q_blocks, q_block = turn == 0 ? 0 : q_blocks - turn;
  const int b = bh / args.heads, h = bh % args.heads, h_kv = h / (args.heads / args.heads_kv);
  const int q_tile = Split ? q_block : 2 * q_block + wg, half = q_tile & 1;

  if (threadIdx.x == 0) init_block<S>(full_q, full_k, free_k, &q_map, &k_map, &v_map);
  wait_for_previous();
  let_next_start();
  if (threadIdx.x == 0) load_queries<S>(shared, &q_map, full_q, Split ? q_block : 2 * q_block, h, b);
  const int kv_tiles = (args.seq_k + 63) / 64;
  if (args.schedule == nullptr) {  // every key is live
    const int steps = (kv_tiles + 1) / 2;
    for (int i = threadIdx.x; i <= steps; i += 128 * WG) write_full_step(schedule, i, steps, kv_tiles);
  } else {
    copy_schedule<128 * WG>(args, b, h, q_tile, schedule);
  }
  if constexpr (S::ones) fill_ones<T>(ones, S::ones_bytes);
  __syncthreads();
  // The first query tile's steps are 0 ... end0, the second's begin1 ... count.
  const int count = uniform(schedule[0].x), end0 = uniform(schedule[0].z), begin1 = uniform(schedule[0].w);
  const int begin = half ? begin1 : 0, end = half ? count : end0;
  const int origin = Split ? begin : 0, last = Split ? end : count;  // the block's steps

  auto load_k = [&](int step) {
    load_step<S>(schedule, step, &k_map, k_ring, full_k, (step - origin) % KSlots, h_kv, b);
  };
  auto load_v = [&](int step) {
    load_step<S>(schedule, step, &v_map, v_ring, full_v, (step - origin) % VSlots, h_kv, b);
  };
  if (threadIdx.x == 0) fill_rings<S>(origin, last, load_k, load_v);

  const int t2 = 2 * (lane % 4);
  uint8_t* q_own = shared + (Split ? 0 : wg) * Panels * kTileBytes;
  const float factor = to_powers_of_two(args);
  const int position = 64 * q_tile + warp % 4 * 16 + lane / 4 + args.seq_k - args.seq_q;  // of the thread's first row
  const ExpressedRow rows[2] = {{scored_of(args), b, h, position}, {scored_of(args), b, h, position + 8}};
  float o[Acc] = {};  // the context; behind it, with ones, the sums
  float x[64];
  uint32_t weights[8][4];
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f};

  auto await_k = [&](int step) { barrier_wait(full_k + (step - origin) % KSlots, ((step - origin) / KSlots) & 1); };
  auto await_v = [&](int step) { barrier_wait(full_v + (step - origin) % VSlots, ((step - origin) / VSlots) & 1); };
  auto release_k = [&](int step) { release_step<KSlots>(step, origin, last, lane, free_k, load_k); };
  auto release_v = [&](int step) { release_step<VSlots>(step, origin, last, lane, free_v, load_v); };
  auto start_scores = [&](int step) {
    start_score_product<T, Panels>(x, q_own, k_ring, (step - origin) % KSlots, full_k, ((step - origin) / KSlots) & 1);
  };
  auto start_context = [&](int step) {
    start_context_product<T, Panels>(o, weights, v_ring, (step - origin) % VSlots, full_v,
                                     ((step - origin) / VSlots) & 1, ones);
  };
  const int first = Split ? begin + wg : begin, stride = Split ? WG : 1;
  auto tiles_of = [&](int step) {
    const int4 tiles = schedule[2 * step + 1];
    return make_int2(tiles.x, tiles.y);
  };
  const int bias_row = 64 * q_tile + warp % 4 * 16;  // the warp's first
  const int64_t bias_head = b * args.bias_stride[0] + h * args.bias_stride[1];
  uint32_t bias[kBiasWords<S::parked>];
  parked += warp * kParkedBytes<S::parked>;
  auto fetch = [&](int step) {
    if constexpr (kPieces<Args>) {
      const T* rows = static_cast<const T*>(args.bias) + bias_head + bias_row * args.bias_stride[2];
      if (step < end) fetch_bias<T, S::parked>(args, rows, args.seq_q - bias_row, lane, tiles_of(step), parked, bias);
    }
  };
  auto add = [&](int step) {
    if constexpr (kBiased<Args>) {
      const float scale = kExpressed || args.more.softcap > 0.f ? 1.f : args.scale;  // else they are scaled already
      if constexpr (kPieces<Args>)
        add_fetched_bias<T, S::parked>(x, scale, lane, parked, bias);
      else
        add_bias<T>(x, scale, args, bias_head, bias_row + lane / 4, t2, tiles_of(step));
      if constexpr (S::overlap) fetch(step + stride);
    }
  };
  auto softmax = [&](int step, const StepMask& mask, float (&shrink)[2]) {
    if constexpr (kExpressed)
      express_scores(x, args.scale, rows, tiles_of(step), t2);
    else if constexpr (kScored<Args>)
      cap_scores(x, args.scale, args.more.softcap);
    add(step);
    mask_scores(x, args, mask, step, t2);
    return weigh<!S::ones, kBiased<Args>>(x, factor, maximum, sum, shrink);
  };

  fetch(first);
  barrier_wait(full_q, 0);
  if constexpr (!Split) pass_by(0, begin, await_k, release_k, await_v, release_v);
  auto read = [&](int step, StepMask& mask) { read_mask(args, schedule, step, half, mask); };
  if constexpr (!S::overlap) {
    for (int step = first; step < end; step += stride) {
      StepMask mask;
      float shrink[2];
      read(step, mask);
      start_scores(step);
      wgmma_wait<0>();
      fence_registers(x);
      release_k(step);
      if (softmax(step, mask, shrink)) rescale(o, shrink);
      pack_weights<T>(weights, x);
      start_context(step);
      fetch(step + stride);  // beside the softmax it spills
      wgmma_wait<0>();
      fence_registers(o);
      release_v(step);
    }
  } else {
    overlap_steps<T>(o, x, weights, first, stride, end, read, start_scores, release_k, softmax, start_context,
                     release_v);
  }
  if constexpr (!Split) pass_by(end, count, await_k, release_k, await_v, release_v);

  total<Panels>(sum, o);
  if constexpr (Split) {
    // The rings are free: all that was loaded into them has been waited for.
    static_assert(kMergeBytes<64 * Panels, WG> <= (KSlots + VSlots) * S::slot_bytes);
    if (!merge_parts<64 * Panels, WG, kBiased<Args>>(reinterpret_cast<float*>(k_ring), wg, o, sum, maximum, factor))
      return;
  }

  float inverse[2] = {inverse_of_sum(sum[0]), inverse_of_sum(sum[1])};
  const auto value = [&](int i, int r) { return o[i] * inverse[r]; };
  if constexpr (kScored<Args>) {
    if (args.more.sinks) divide_with_sink(inverse, args.more.sinks[h], sum, maximum, factor);
    store_rows<T, Panels, true>(q_own, wg, args, b, h, q_tile, value, args.more);
  } else {
    store_rows<T, Panels>(q_own, wg, args, b, h, q_tile, value);
  }
#endif
}

template <typename T, int Panels, int WG, bool Split, typename Args>
const char* launch(const Args& args, cudaStream_t stream) {
  using S = ScheduledShape<Panels, WG, Split, kPieces<Args>>;
  CUtensorMap q_map, k_map, v_map;
  if (const char* why = make_maps<T>(args, &q_map, &k_map, &v_map)) return why;
  constexpr auto kernel = attention_scheduled<T, Panels, WG, Split, Args>;
  const int kv_tiles = (args.seq_k + 63) / 64, bytes = S::shared_bytes(kv_tiles);
  if (const char* why = allow_shared_up_to<kernel>(bytes)) return why;
  const int q_tiles = (args.seq_q + 63) / 64, q_blocks = Split ? q_tiles : (q_tiles + 1) / 2;
  const int64_t grid = int64_t(q_blocks) * args.batch * args.heads;
  if (grid > INT32_MAX) return "unsupported: more than 2^31 blocks";
  return launch_dependent(kernel, unsigned(grid), 128 * WG, bytes, stream, 1, q_map, k_map, v_map, args, q_blocks);
}

template <typename T, typename Args> const char* with_panels(const Args& args, cudaStream_t stream) {
  // Few query tiles: several warpgroups share one, so that its list takes less time. Many: each its own. Up to 528, two
  // that share one begin a second round of blocks, which short lists do not pay for.
  const int64_t tiles = int64_t(args.batch) * args.heads * ((args.seq_q + 63) / 64);
  const int longest = args.schedule ? (args.schedule_stride - 1) / 2 : (args.seq_k + 127) / 128;  // in steps
  if (args.head_dim <= 64) {
    if constexpr (is_built<T, 64>()) {
      constexpr auto bytes = ScheduledShape<1, 4, true, kPieces<Args>>::shared_bytes;
      if (tiles <= 132 && longest > 2 && bytes((args.seq_k + 63) / 64) <= kMaxSharedBytes)
        return launch<T, 1, 4, true>(args, stream);
      if ((tiles <= 264 && longest > 1) || (tiles <= 528 && longest > 5)) return launch<T, 1, 2, true>(args, stream);
      return launch<T, 1, 2, false>(args, stream);
    }
  } else if constexpr (is_built<T, 128>()) {
    return tiles <= 132 ? launch<T, 2, 2, true>(args, stream) : launch<T, 2, 2, false>(args, stream);
  }
  return kOtherBuild;
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionArgs* args, void* stream) {
  if (args->head_dim > 128) return "unsupported: head_dim above 128 (v3_hopper takes it)";
  if (!(args->scale > 0)) return "unsupported: a scale that is not positive (v3_hopper takes it)";
  if (args->row_ptr && !args->schedule) return "unsupported: a plan without a schedule";
  if ((args->seq_k + 63) / 64 > kMaxTiles) return "unsupported: more than 131072 keys";
  if (const char* why = refused_by_expression(*args)) return why;
  return dispatch_16bit(
      args->dtype, "unsupported: float32 (the tensor cores take float16 and bfloat16; use v1_rowwise)", [&](auto zero) {
        using T = decltype(zero);
        const auto on = static_cast<cudaStream_t>(stream);
        const AttentionScored scored = take_scored(*args);
        if constexpr (!kExpressed)
          if (args->bias && has_pieces(*args)) return with_panels<T>(BiasedArgs<true>{{*args, scored}}, on);
        if (args->bias) return with_panels<T>(BiasedArgs<false>{{*args, scored}}, on);
        if constexpr (!kExpressed)
          if (!scored.given()) return with_panels<T>(*args, on);
        return with_panels<T>(ScoredArgs{*args, scored}, on);
      });
}
