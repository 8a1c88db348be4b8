// Hopper, a mask in parts and items of work: blocks that stay, a warp that loads ahead, rows in order of residues, long
// lists in pieces.
// archs: sm_90a
// expects: HGMMA UTMALDG UTMASTG
// takes: fp16 bf16, d<=128, no-bias, scale>0, tma
// plan: parts
//
// One block stays on each multiprocessor and its teams walk through their own items (hopper_take.cuh): two neighbouring
// query tiles and steps of a KV tile that either of them needs. A dilated mask is a sliding window inside each residue
// class, a strided one a window and, in order of residues, a triangle: TMA takes 64 rows of such an order as one box,
// from the rows' own places and back to them, so nothing is copied. Where neighbouring lists overlap a team takes them
// one after another, and the KV tiles that the next begins with stay in shared memory. A list that would keep one team
// busy while others are done is cut; its pieces leave sums and contexts in fp32, which a second kernel joins in their
// order. Where parts follow one another, rows are merged by log-sum-exp with what is already there, which arrives by
// TMA like queries and keys. A later part's blocks start, by programmatic dependent launch, on multiprocessors that the
// part before has left, and fetch queries and keys while others finish it. Everything happens in a fixed order, so that
// results repeat bit for bit.
#include "../common/roles.cuh"
#include "attention.cuh"
#include "hopper_take.cuh"

namespace {
using namespace hopper;

template <typename T, int Panels> __global__ void __launch_bounds__(Shape<Panels>::threads, 1) attention_items(
    const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
    const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap before_map,
    const __grid_constant__ CUtensorMap out_map, const __grid_constant__ AttentionArgs args,
    const __grid_constant__ Items work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Shape<Panels>;
  extern __shared__ __align__(1024) uint8_t shared[];
  // What all lanes of a warp share goes through a shuffle, so that the compiler knows it and keeps it in uniform
  // registers.
  const int warp = uniform(threadIdx.x / 32), wg = warp / 4;
  if (wg < 2 * S::teams && threadIdx.x % 256 == 0) {
    Team<S>(shared, wg / 2).init();
    barrier_init_fence();
  }
  Ahead ahead;
  const int number = warp % 4 * gridDim.x +
                     blockIdx.x;  // of the team that a loading warp is for: first all blocks' first ones (items.py)
  if (wg == 2 * S::teams && warp % 4 < S::teams) {  // while others make barriers
    for (const CUtensorMap* map : {&q_map, &k_map, &v_map, &out_map})
      if (threadIdx.x % 128 == 0) prefetch_map(map);
    ahead = first_ahead(work, number);
  }
  fill_ones<T, S>(shared);
  __syncthreads();
  // A later part reads what the first one reads, and waits before it reads what that leaves (hopper_load.cuh,
  // hopper_take.cuh); what follows it starts when it ends, since its blocks do not know here that those before have.
  if (wg < 2 * S::teams) {
    if (!work.later) wait_for_previous();
    if (!work.later || work.more) let_next_start();
  }
  if (wg == 2 * S::teams) {
    fewer_registers<S::loader_registers>();
    const int t = warp % 4;
    if (t < S::teams)
      load_items<Panels>(&q_map, &k_map, &v_map, &before_map, args, work, Team<S>(shared, t), number, ahead);
  } else {
    more_registers<S::team_registers>();
    take_items<T, Panels>(args, &out_map, work, Team<S>(shared, wg / 2), wg);
  }
#endif
}

// A block a (list that was cut, query tile of its pair, 16 of its rows): the pieces' results in their order, each warp
// a quarter of the columns; AtOnce of them are on their way together.
template <typename T, int Panels, int AtOnce>
__global__ void __launch_bounds__(128) attention_items_join(const __grid_constant__ AttentionArgs args,
                                                            const __grid_constant__ Items work) {
  __shared__ __align__(128) uint8_t tile[Panels * kTileBytes];
  constexpr int64_t kSlot = 2 * (32 * Panels + 4) * 128;
  constexpr int kValues = 8 * Panels;  // of the context a thread has
  wait_for_previous();
  let_next_start();
  const int4 cut = work.joins[blockIdx.x / 8];
  const int half = blockIdx.x / 4 % 2, rows = blockIdx.x % 4;
  const float* const first = work.slot_at<Panels>(cut.z, half, 32 * rows + threadIdx.x % 32);
  const float* const mine = first + threadIdx.x / 32 * kValues * 128;
  float reference[2] = {-INFINITY, -INFINITY}, sum[2] = {}, o[kValues] = {};
  for (int from = 0; from < cut.w; from += AtOnce) {
    float tops[AtOnce][2], sums[AtOnce][2], contexts[AtOnce][kValues];
#pragma unroll
    for (int p = 0; p < AtOnce; ++p) {
      const bool there = from + p < cut.w;
      const int64_t at = (from + p) * kSlot;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        tops[p][r] = there ? first[at + (32 * Panels + 2 + r) * 128] : -INFINITY;
        sums[p][r] = there ? first[at + (32 * Panels + r) * 128] : 0.f;
      }
#pragma unroll
      for (int i = 0; i < kValues; ++i) contexts[p][i] = there ? mine[at + i * 128] : 0.f;
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
  work.store<T, Panels>(args, cut.y, (2 * cut.x + half) * 64 + kWarpRows * rows, tile, o, sum, reference);
}

// Few blocks start, by programmatic dependent launch, as multiprocessors become free, and have one each because of the
// shared memory they ask for: all on the first free ones would take longer.
template <typename T, int Panels, int AtOnce> const char* launch_join(const AttentionArgs& args, const Items& work,
                                                                      unsigned joins, unsigned multiprocessors,
                                                                      cudaStream_t stream) {
  constexpr auto kernel = attention_items_join<T, Panels, AtOnce>;
  constexpr int kMostOfIt = 120 * 1024;
  if (joins > multiprocessors) {
    kernel<<<joins, 128, 0, stream>>>(args, work);
    return launch_error();
  }
  if (const char* why = allow_shared_up_to<kernel>(kMostOfIt)) return why;
  return launch_dependent(kernel, joins, 128, kMostOfIt, stream, 1, args, work);
}

template <typename T, int Panels> const char* launch(const AttentionPartsArgs& all, cudaStream_t stream) {
  using S = Shape<Panels>;
  const AttentionArgs& args = all.args;
  const int64_t q_sizes[4] = {args.batch, args.heads, args.seq_q, args.head_dim};
  const int64_t kv_sizes[4] = {args.batch, args.heads_kv, args.seq_k, args.head_dim};
  const int64_t out_stride[4] = {args.out_stride[0], args.out_stride[1], args.out_stride[2], 1};
  constexpr bool bf16 = std::is_same_v<T, __nv_bfloat16>;
  constexpr auto kernel = attention_items<T, Panels>;
  if (const char* why = allow_shared_up_to<kernel>(S::bytes)) return why;
  for (int64_t p = 0; p < all.part_count; ++p) {
    const AttentionPart& part = all.parts[p];
    CUtensorMap q_map, k_map, v_map, before_map, out_map;
    if (const char* why = make_ordered_map(&q_map, bf16, args.q, q_sizes, args.q_stride, part.q_modulus)) return why;
    if (const char* why = make_ordered_map(&k_map, bf16, args.k, kv_sizes, args.k_stride, part.k_modulus)) return why;
    if (const char* why = make_ordered_map(&v_map, bf16, args.v, kv_sizes, args.v_stride, part.k_modulus)) return why;
    if (const char* why = make_ordered_map(&before_map, bf16, args.out, q_sizes, out_stride, part.q_modulus))
      return why;
    if (const char* why = make_ordered_map(&out_map, bf16, args.out, q_sizes, out_stride, part.q_modulus, kWarpRows))
      return why;
    Items work{};
    work.items = reinterpret_cast<const int4*>(all.items) + part.items;
    work.joins = reinterpret_cast<const int4*>(all.items) + part.joins;
    work.schedule = reinterpret_cast<const int4*>(args.schedule);
    work.slots = all.workspace;
    work.lse = all.part_count > 1 ? all.workspace + part_slots_floats(all) : nullptr;
    for (int i = 0; i < 3; ++i) work.out_stride[i] = args.out_stride[i];
    work.rounds = int(part.rounds);
    work.teams = int(part.teams);
    work.q_modulus = int(part.q_modulus);
    work.q_length = args.seq_q / work.q_modulus;
    work.later = p > 0;
    work.more = p + 1 < all.part_count;
    const unsigned grid = unsigned((part.teams + S::teams - 1) / S::teams), joins = unsigned(8 * part.join_count);
    if (part.rounds)
      if (const char* why = launch_dependent(kernel, grid, S::threads, S::bytes, stream, 1, q_map, k_map, v_map,
                                             before_map, out_map, args, work))
        return why;
    if (joins)
      if (const char* why = part.slots > 4 * part.join_count
                                ? launch_join<T, Panels, 8>(args, work, joins, grid, stream)
                                : launch_join<T, Panels, 2>(args, work, joins, grid, stream))
        return why;
    if (const char* why = launch_error()) return why;
  }
  return nullptr;
}

template <typename T> const char* with_panels(const AttentionPartsArgs& all, cudaStream_t stream) {
  return all.args.head_dim <= 64 ? launch<T, 1>(all, stream) : launch<T, 2>(all, stream);
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionArgs* args, void* stream) {
  if (args->head_dim > 128) return "unsupported: head_dim above 128 (v3_hopper takes it)";
  if (args->bias || !(args->scale > 0))
    return "unsupported: a bias, or a scale that is not positive (v3_hopper takes them)";
  if (args->dtype == FS_FLOAT32)
    return "unsupported: float32 (the tensor cores take float16 and bfloat16; use v1_rowwise)";
  // The binding keeps AttentionArgs as the first member of what it gives to every kernel.
  const AttentionPartsArgs& all = *reinterpret_cast<const AttentionPartsArgs*>(args);
  if (!all.part_count) return "unsupported: no parts (attention() makes them of the mask)";
  const auto on = static_cast<cudaStream_t>(stream);
  return args->dtype == FS_FLOAT16 ? with_panels<__half>(all, on) : with_panels<__nv_bfloat16>(all, on);
}
