// Persistent blocks that work through work items (parts.h): the kernel, the one that merges partial results, and their
// launches. Tiles: query tiles of a group.
#pragma once
#include "../common/roles.cuh"
#include "attention.cuh"
#include "hopper_consumer.cuh"
#include "hopper_launch.cuh"

namespace hopper {

// Args: AttentionArgs, or ScoredItemArgs with a soft-cap or sinks.
template <typename T, int Panels, int Tiles, typename Args>
__global__ void __launch_bounds__(Shape<Panels, Tiles>::threads, 1) attention_items(
    const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
    const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap previous_map,
    const __grid_constant__ CUtensorMap out_map, const __grid_constant__ Args args,
    const __grid_constant__ WorkItems work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Shape<Panels, Tiles>;
  extern __shared__ __align__(1024) uint8_t shared[];
  // A shuffle tells the compiler that the value is the same in all lanes, so that it uses uniform registers.
  const int warp = uniform(threadIdx.x / 32), wg = warp / 4;
  constexpr int kConsumers = S::tiles * S::teams;  // warpgroups; the producer's follows
  if (wg < kConsumers && threadIdx.x % (128 * S::tiles) == 0) {
    SharedStorage<S>(shared, wg / S::tiles).init();
    barrier_init_fence();
  }
  Prefetched prefetched;
  const int number =
      warp % 4 * gridDim.x +
      blockIdx.x;  // of the producer warp's team: the first teams of all blocks, then the second ones (items.py)
  if (wg == kConsumers && warp % 4 < S::teams) {  // while others initialise the barriers
    for (const CUtensorMap* map : {&q_map, &k_map, &v_map, &out_map})
      if (threadIdx.x % 128 == 0) prefetch_map(map);
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
  } else {
    more_registers<S::consumer_registers>();
    consume_work_items<T, Panels>(args, &out_map, work, SharedStorage<S>(shared, wg / S::tiles), wg);
  }
#endif
}

// Merges the partial results of a split list in order. One block per (split list, query tile of its group, 16 rows),
// each warp a quarter of the columns; AtOnce partial results are loaded together.
template <typename T, int Panels, int Tiles, int AtOnce, typename Args>
__global__ void __launch_bounds__(128) attention_items_merge(const __grid_constant__ Args args,
                                                             const __grid_constant__ WorkItems work) {
  __shared__ __align__(128) uint8_t tile[Panels * kTileBytes];
  constexpr int64_t kSlot = Tiles * (32 * Panels + 4) * 128;
  constexpr int kValues = 8 * Panels;  // values of the context per thread
  wait_for_previous();
  let_next_start();
  const int4 split = work.merges[blockIdx.x / (4 * Tiles)];
  const int which = blockIdx.x / 4 % Tiles, rows = blockIdx.x % 4;
  const float* const first = work.partial_at<Panels, Tiles>(split.z, which, 32 * rows + threadIdx.x % 32);
  const float* const mine = first + threadIdx.x / 32 * kValues * 128;
  float reference[2] = {-INFINITY, -INFINITY}, sum[2] = {}, o[kValues] = {};
  for (int from = 0; from < split.w; from += AtOnce) {
    float tops[AtOnce][2], sums[AtOnce][2], contexts[AtOnce][kValues];
#pragma unroll
    for (int p = 0; p < AtOnce; ++p) {
      const bool exists = from + p < split.w;
      const int64_t at = (from + p) * kSlot;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        tops[p][r] = exists ? first[at + (32 * Panels + 2 + r) * 128] : -INFINITY;
        sums[p][r] = exists ? first[at + (32 * Panels + r) * 128] : 0.f;
      }
#pragma unroll
      for (int i = 0; i < kValues; ++i) contexts[p][i] = exists ? mine[at + i * 128] : 0.f;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = reference[r];
#pragma unroll
      for (int p = 0; p < AtOnce; ++p) top = fmaxf(top, tops[p][r]);
      if (top == -INFINITY) continue;  // no key so far
      const float shrink = exp2_approx(reference[r] - top);
      reference[r] = top;
      sum[r] *= shrink;
#pragma unroll
      for (int i = 0; i < kValues; ++i)
        if (i / 2 % 2 == r) o[i] *= shrink;
#pragma unroll
      for (int p = 0; p < AtOnce; ++p) {
        const float share = exp2_approx(tops[p][r] - top);
        sum[r] += sums[p][r] * share;
#pragma unroll
        for (int i = 0; i < kValues; ++i)
          if (i / 2 % 2 == r) o[i] += contexts[p][i] * share;
      }
    }
  }
  work.store<T, Panels>(args, split.y, (Tiles * split.x + which) * 64 + kWarpRows * rows, tile, o, sum, reference);
}

// At most one block per multiprocessor: they start by programmatic dependent launch as multiprocessors become free, and
// request so much shared memory that each has one to itself; crowded on the first free ones they would be slower.
template <typename T, int Panels, int Tiles, int AtOnce, typename Args>
const char* launch_merge(const Args& args, const WorkItems& work, unsigned merges, unsigned multiprocessors,
                         cudaStream_t stream) {
  constexpr auto kernel = attention_items_merge<T, Panels, Tiles, AtOnce, Args>;
  constexpr int kMostOfSharedMemory = 120 * 1024;
  if (merges > multiprocessors) {
    kernel<<<merges, 128, 0, stream>>>(args, work);
    return launch_error();
  }
  if (const char* why = allow_shared_up_to<kernel>(kMostOfSharedMemory)) return why;
  return launch_dependent(kernel, merges, 128, kMostOfSharedMemory, stream, 1, args, work);
}

// Why a kernel for groups of so many query tiles does not take a call; nullptr where it does.
inline const char* refuse(const AttentionPartsArgs& all, int64_t tiles) {
  if (all.args.bias || !(all.args.scale > 0))
    return "unsupported: a bias, or a scale that is not positive (v3_hopper takes them)";
  if (all.args.dtype == FS_FLOAT32)
    return "unsupported: float32 (the tensor cores take float16 and bfloat16; use v1_rowwise)";
  if (!all.part_count) return "unsupported: no parts (attention() derives them from the mask)";
  if (all.parts->tiles != tiles) return "unsupported: work items for groups of another number of query tiles";
  return nullptr;
}

// nullptr when launched, else why not. args: those of `all`, or the same with what scores are modified by.
template <typename T, int Panels, int Tiles, typename Args>
const char* launch_items(const AttentionPartsArgs& all, const Args& args, cudaStream_t stream) {
  using S = Shape<Panels, Tiles>;
  const int64_t q_sizes[4] = {args.batch, args.heads, args.seq_q, args.head_dim};
  const int64_t kv_sizes[4] = {args.batch, args.heads_kv, args.seq_k, args.head_dim};
  const int64_t out_stride[4] = {args.out_stride[0], args.out_stride[1], args.out_stride[2], 1};
  constexpr bool bf16 = std::is_same_v<T, __nv_bfloat16>;
  constexpr auto kernel = attention_items<T, Panels, Tiles, Args>;
  if (const char* why = allow_shared_up_to<kernel>(S::bytes)) return why;
  for (int64_t p = 0; p < all.part_count; ++p) {
    const AttentionPart& part = all.parts[p];
    CUtensorMap q_map, k_map, v_map, previous_map, out_map;
    if (const char* why = make_ordered_map(&q_map, bf16, args.q, q_sizes, args.q_stride, part.q_modulus)) return why;
    if (const char* why = make_ordered_map(&k_map, bf16, args.k, kv_sizes, args.k_stride, part.k_modulus)) return why;
    if (const char* why = make_ordered_map(&v_map, bf16, args.v, kv_sizes, args.v_stride, part.k_modulus)) return why;
    if (const char* why = make_ordered_map(&previous_map, bf16, args.out, q_sizes, out_stride, part.q_modulus))
      return why;
    if (const char* why = make_ordered_map(&out_map, bf16, args.out, q_sizes, out_stride, part.q_modulus, kWarpRows))
      return why;
    WorkItems work{};
    work.items = reinterpret_cast<const int4*>(all.items) + part.items;
    work.merges = reinterpret_cast<const int4*>(all.items) + part.merges;
    work.schedule = reinterpret_cast<const int4*>(args.schedule);
    work.slots = all.workspace;
    work.lse = all.part_count > 1 ? all.workspace + part_slots_floats(all) : nullptr;
    for (int i = 0; i < 3; ++i) work.out_stride[i] = args.out_stride[i];
    work.rounds = int(part.rounds);
    work.workers = int(part.workers);
    work.q_modulus = int(part.q_modulus);
    work.q_length = args.seq_q / work.q_modulus;
    work.k_length = args.seq_k / int(part.k_modulus);
    work.has_previous = p > 0;
    work.has_next = p + 1 < all.part_count;
    const unsigned grid = unsigned((part.workers + S::teams - 1) / S::teams),
                   merges = unsigned(4 * S::tiles * part.merge_count);
    if (part.rounds)
      if (const char* why = launch_dependent(kernel, grid, S::threads, S::bytes, stream, 1, q_map, k_map, v_map,
                                             previous_map, out_map, args, work))
        return why;
    if (merges)
      if (const char* why = part.slots > 4 * part.merge_count
                                ? launch_merge<T, Panels, Tiles, 8>(args, work, merges, grid, stream)
                                : launch_merge<T, Panels, Tiles, 2>(args, work, merges, grid, stream))
        return why;
    if (const char* why = launch_error()) return why;
  }
  return nullptr;
}

}  // namespace hopper
