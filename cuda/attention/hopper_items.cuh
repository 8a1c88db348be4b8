// Persistent blocks that work through work items (parts.h): the kernel and its launches, one for each part of the mask.
// Tiles: query tiles of a group.
#pragma once
#include "../common/roles.cuh"
#include "attention.cuh"
#include "hopper_consumer.cuh"
#include "hopper_launch.cuh"

namespace hopper {

// Args: AttentionArgs, ScoredItemArgs with a soft-cap or sinks, BiasedItemArgs or BiasTileArgs.
template <typename T, int Panels, int Tiles, typename Args>
__global__ void __launch_bounds__(Shape<Panels, Tiles, kItemBias<Args>>::threads, 1) attention_items(
    const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
    const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap previous_map,
    const __grid_constant__ CUtensorMap out_map, const __grid_constant__ Args args,
    const __grid_constant__ WorkItems work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Shape<Panels, Tiles, kItemBias<Args>>;
  extern __shared__ __align__(1024) uint8_t shared[];
  // A shuffle tells the compiler that the value is the same in all lanes, so that it uses uniform registers.
  const int warp = uniform(threadIdx.x / 32), wg = warp / 4;
  constexpr int kConsumers = S::tiles * S::teams;  // warpgroups; the producer's follows
  if (wg < kConsumers && threadIdx.x % (128 * S::tiles) == 0) {
    SharedStorage<S>(shared, wg / S::tiles).init();
    if constexpr (S::bias_tiles)
      for (int w = 0; w < S::tiles; ++w) bias_ring(SharedStorage<S>(shared, wg / S::tiles), w).init();
    barrier_init_fence();
  }
  Prefetched prefetched;
  constexpr int kProducers = S::teams * (1 + S::bias_tiles);  // warps; those of the bias come last
  const int team = S::bias_tiles ? warp % 4 % S::teams : warp % 4;
  const int number =
      team * gridDim.x +
      blockIdx.x;  // of the producer warp's team: the first teams of all blocks, then the second ones (items.py)
  if (wg == kConsumers && warp % 4 < kProducers) {  // while others initialise the barriers
    for (const CUtensorMap* map : {&q_map, &k_map, &v_map, &out_map})
      if (threadIdx.x % 128 == 0) prefetch_map(map);
    if constexpr (S::bias_tiles)
      if (threadIdx.x % 128 == 0) prefetch_map(&args.map);
    prefetched = first_prefetch<S::tiles>(work, number);
  }
  fill_ones<T, S>(shared);
  __syncthreads();
  // A later part loads the same inputs as the first and waits only before it reads the earlier result
  // (hopper_producer.cuh, hopper_consumer.cuh). Here its blocks do not know yet that the earlier part is complete, so
  // the last part does not let the next kernel start early.
  if (wg < kConsumers) {
    if (!work.has_previous) wait_for_previous();
    if (!work.has_previous || work.has_next) let_next_start();
  }
  if (wg == kConsumers) {
    fewer_registers<S::producer_registers>();
    const int t = warp % 4;
    if (t < S::teams)
      produce_work_items<Panels>(&q_map, &k_map, &v_map, &previous_map, args, work, SharedStorage<S>(shared, t), number,
                                 prefetched);
    else if constexpr (S::bias_tiles)
      if (t < kProducers) produce_bias(args, work, SharedStorage<S>(shared, team), number, prefetched);
  } else {
    more_registers<S::consumer_registers>();
    consume_work_items<T, Panels>(args, &out_map, work, SharedStorage<S>(shared, wg / S::tiles), wg);
  }
#endif
}

// Why a kernel for groups of so many query tiles does not take a call; nullptr where it does.
inline const char* refuse(const AttentionPartsArgs& all, int64_t tiles) {
  if (!(all.args.scale > 0)) return "unsupported: a scale that is not positive (v3_hopper takes it)";
  if (all.args.dtype == FS_FLOAT32)
    return "unsupported: float32 (the tensor cores take float16 and bfloat16; use v1_rowwise)";
  if (!all.part_count) return "unsupported: no parts (attention() derives them from the mask)";
  if (all.parts->tiles != tiles) return "unsupported: work items for groups of another number of query tiles";
  return nullptr;
}

// The kernel for one part. args: of the part.
template <typename T, int Panels, int Tiles, typename Args>
const char* launch_part(const Args& args, unsigned workers, const CUtensorMap (&maps)[5], const WorkItems& work,
                        cudaStream_t stream) {
  using S = Shape<Panels, Tiles, kItemBias<Args>>;
  constexpr auto kernel = attention_items<T, Panels, Tiles, Args>;
  if (const char* why = allow_shared_up_to<kernel>(S::bytes)) return why;
  const unsigned grid = (workers + S::teams - 1) / S::teams;
  return launch_dependent(kernel, grid, S::threads, S::bytes, stream, 1, maps[0], maps[1], maps[2], maps[3], maps[4],
                          args, work);
}

// The same with a bias.
template <typename T, int Panels, int Tiles>
const char* launch_part_with_bias(BiasedItemArgs args, const AttentionPart& part, const CUtensorMap (&maps)[5],
                                  const WorkItems& work, cudaStream_t stream) {
  if (part.k_modulus == 1 && has_pieces(args)) {
    BiasTileArgs by_tiles;
    if (const char* why = load_by_tiles<T>(args, part.q_modulus, &by_tiles)) return why;
    return launch_part<T, Panels, Tiles>(by_tiles, unsigned(part.workers), maps, work, stream);
  }
  args.k_modulus = int(part.k_modulus);
  while (part.k_modulus > 1 && work.k_length < 1 << args.k_shift) --args.k_shift;
  args.k_mask = (1 << args.k_shift) - 1;
  return launch_part<T, Panels, Tiles>(args, unsigned(part.workers), maps, work, stream);
}

// nullptr when launched, else why not. args: those of `all`, or the same with what scores are modified by.
template <typename T, int Panels, int Tiles, typename Args>
const char* launch_items(const AttentionPartsArgs& all, const Args& args, cudaStream_t stream) {
  using S = Shape<Panels, Tiles>;
  const int64_t q_sizes[4] = {args.batch, args.heads, args.seq_q, args.head_dim};
  const int64_t kv_sizes[4] = {args.batch, args.heads_kv, args.seq_k, args.head_dim};
  const int64_t out_stride[4] = {args.out_stride[0], args.out_stride[1], args.out_stride[2], 1};
  constexpr bool bf16 = std::is_same_v<T, __nv_bfloat16>;
  float* const tickets = all.workspace + part_slots(all) * part_slot_floats(all);
  for (int64_t p = 0; p < all.part_count; ++p) {
    const AttentionPart& part = all.parts[p];
    CUtensorMap maps[5];  // queries, keys, values, earlier results and results
    if (const char* why = make_ordered_map(&maps[0], bf16, args.q, q_sizes, args.q_stride, part.q_modulus)) return why;
    if (const char* why = make_ordered_map(&maps[1], bf16, args.k, kv_sizes, args.k_stride, part.k_modulus)) return why;
    if (const char* why = make_ordered_map(&maps[2], bf16, args.v, kv_sizes, args.v_stride, part.k_modulus)) return why;
    if (const char* why = make_ordered_map(&maps[3], bf16, args.out, q_sizes, out_stride, part.q_modulus)) return why;
    if (const char* why = make_ordered_map(&maps[4], bf16, args.out, q_sizes, out_stride, part.q_modulus, kWarpRows))
      return why;
    WorkItems work{};
    work.items = reinterpret_cast<const int4*>(all.items) + part.items;
    work.schedule = reinterpret_cast<const int4*>(args.schedule);
    work.partials = {all.workspace, reinterpret_cast<uint64_t*>(tickets), part.slots ? next_tag() : 0,
                     reinterpret_cast<const int4*>(all.items) + part.pieces};
    work.lse = all.part_count > 1 ? tickets + part_ticket_floats(all) : nullptr;
    for (int i = 0; i < 3; ++i) work.out_stride[i] = args.out_stride[i];
    work.rounds = int(part.rounds);
    work.workers = int(part.workers);
    work.q_modulus = int(part.q_modulus);
    work.q_length = args.seq_q / work.q_modulus;
    work.k_length = args.seq_k / int(part.k_modulus);
    work.has_previous = p > 0;
    work.has_next = p + 1 < all.part_count;
    if (part.rounds) {
      const char* why = nullptr;
      if constexpr (kBiasedItems<Args>)
        why = launch_part_with_bias<T, Panels, Tiles>(args, part, maps, work, stream);
      else
        why = launch_part<T, Panels, Tiles>(args, unsigned(part.workers), maps, work, stream);
      if (why) return why;
    }
    if (const char* why = launch_error()) return why;
  }
  return nullptr;
}

}  // namespace hopper
