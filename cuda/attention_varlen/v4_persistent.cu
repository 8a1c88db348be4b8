// Hopper, persistent blocks: warp specialisation, items drawn one after another.
// archs: sm_90a
// expects: HGMMA UTMALDG
// takes: fp16 bf16, d<=128, scale>0, tma, window
// least: 128 rows per SM
//
// The block of attention's v5 (hopper_shared.cuh, hopper_step.cuh): up to 64 columns two pairs of consumer warpgroups,
// above one, each pair fed by a producer warp. An item is 128 query rows of a sequence and a head, 64 for each
// warpgroup of the pair, which share KV tiles. Producer warps draw items (../common/tickets.cuh), each while the one
// before is loaded, those with most keys first, so that no multiprocessor is left with more than the others, and load
// queries, keys and values across the bounds of items. Within a window only tiles that an item's rows see are loaded,
// from the last to the first, and only those at the window's edges are masked.
//
// What TMA brings beyond a sequence's end are the next one's rows: scores there are masked, and values set to zero
// before the product with the sequence's last tile.
#include "../attention/hopper_launch.cuh"
#include "../attention/hopper_shared.cuh"
#include "../attention/hopper_step.cuh"
#include "../common/dependent.cuh"
#include "../common/device.cuh"
#include "../common/nan_watch.cuh"
#include "../common/roles.cuh"
#include "items.cuh"
#include "packed_maps.cuh"
#include "sequence_again.cuh"
#include "window_mask.cuh"

namespace {
using namespace hopper;
using varlen::Items, varlen::PackedItem;

constexpr unsigned kAll = 0xffffffffu;

// Stores a warp's 16 rows, from row 16 x (its number in the warpgroup) on of a tile that begins at `to`, of which
// `rows` exist; tile: free shared memory of the warpgroup. Gives the thread's rows that hold a NaN, as bits; if any
// thread has one, all rows are in global memory then.
template <typename T, int Panels> __device__ __forceinline__ unsigned store_rows(uint8_t* tile, T* to, int64_t stride,
                                                                                 int rows, int columns,
                                                                                 const Rows<T, Panels>& from) {
  const int lane = threadIdx.x % 32, first = 16 * (threadIdx.x / 32 % 4);
  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) factor[r] = from.sum(r) > 0.f ? __fdividef(1.f, from.sum(r)) : 0.f;
  // Lane i addresses row i % 8 of 8 x 8 matrix i / 8, so that matrix m holds register m of each thread.
  const uint32_t at = shared_address(tile) + (first + lane % 16) * 128 + ((lane / 16 ^ lane % 8) << 4);
  NanWatch<T> watch[2];
#pragma unroll
  for (int j = 0; j < 4 * Panels; ++j) {
    uint32_t out[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = i % 2, x = 8 * j + 4 * (i / 2) + 2 * r;
      out[i] = tensor_core::pack<T>(from.o[x] * factor[r], from.o[x + 1] * factor[r]);
      watch[r].add(out[i]);
    }
    stmatrix_x4((at ^ (j % 4 << 5)) + j / 4 * kTileBytes, out);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4 * Panels; ++i) {
    const int chunk = i * 32 + lane, c = chunk % (8 * Panels), r = first + chunk / (8 * Panels);
    if (r < rows && c * 8 < columns)
      *reinterpret_cast<uint4*>(to + r * stride + c * 8) =
          *reinterpret_cast<const uint4*>(tile + c / 8 * kTileBytes + r * 128 + ((c % 8 ^ (r & 7)) << 4));
  }
  __syncwarp();  // before the next tile takes its place, and before a broken row is computed again
  return (watch[0].found() ? 1u << lane / 4 : 0) | (watch[1].found() ? 256u << lane / 4 : 0);
}

// By warpgroup wg of the block.
template <typename T, int Panels, typename S, typename Args>
__device__ __forceinline__ void consume(const Args& args, const SharedStorage<S>& smem, int wg) {
  constexpr bool kWindowed = varlen::kWindowed<Args>;
  const int half = wg % 2, lane = threadIdx.x % 32, warp_row = 16 * (threadIdx.x / 32 % 4);
  const float factor = args.scale * kLog2e;
  constexpr uint32_t kTile = S::tile_bytes >> 4;
  const uint64_t first_q = moved_descriptor(tile_descriptor(smem.q.first), half * kTile);
  const uint64_t first_k = tile_descriptor(smem.k.first);
  const uint64_t first_v = Rows<T, Panels>::values_descriptor(smem.v.first, smem.ones);
  uint32_t step = 0;
  Rows<T, Panels> rows;
  for (uint32_t round = 0;; ++round) {
    smem.q.await_full(round);
    const PackedItem item = varlen::read_item(smem, round);
    if (item.head < 0) break;
    const int first = item.work.row + 64 * half, keys = item.work.keys;
    const int tiles = varlen::tiles_end(args, item.work, first);
    const int mine = kWindowed && tiles > 0 ? tiles - varlen::first_of_row(args, item.work, first) / 64 : tiles;
    const uint32_t item_end = step + item.steps;
    auto skip_to = [&](uint32_t to) {  // steps of the other query tile alone
      for (; step < to; ++step) {
        smem.k.await_full(step);
        smem.k.release(step);
        smem.v.await_full(step);
        smem.v.release(step);
      }
    };
    if (kWindowed && mine > 0)
      skip_to(step + varlen::first_of_row(args, item.work, item.work.row) / 64 + item.steps - tiles);
    const uint32_t begin = step, end = step + mine;
    const int diagonal = varlen::diagonal_of(args, item.work), see = first + diagonal;  // of the first row
    const int all_see = see < keys ? see : keys;                                        // it sees fewest
    const int last = kWindowed ? tiles - 1 + int(begin) : 0;  // a window's tiles come in reverse order
    const uint64_t q = moved_descriptor(first_q, round % S::q_stages * 2 * kTile);
    float x[32], part[2];
    uint32_t weights[4][4];
    auto start_scores = [&] {
      smem.k.await_full(step);
      rows.start_scores(x, q, moved_descriptor(first_k, step % S::kv_stages * kTile));
    };
    auto mask = [&] {
      if constexpr (kWindowed)
        return varlen::mask_window(x, see, varlen::width_of(args), keys, (last - int(step)) * 64, warp_row + lane / 4,
                                   2 * (lane % 4));
      const int key = int(step - begin) * 64;
      if (key + 64 <= all_see) return;
      const int row = first + warp_row + lane / 4, column = key + 2 * (lane % 4);
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int at = column + 8 * (i / 4) + (i & 1);
        if (at >= keys || at >= row + (i & 2 ? 8 : 0) + diagonal) x[i] = -INFINITY;
      }
    };
    auto start_context = [&](uint32_t of) {
      smem.v.await_full(of);
      rows.start_context(weights, moved_descriptor(first_v, of % S::kv_stages * Rows<T, Panels>::values_stage));
    };
    auto finish_context = [&](uint32_t of) {
      wgmma_wait<0>();
      fence_registers(rows.o);
      smem.v.release(of);
    };
    // Rows of V beyond the sequence's end become zeros: of the last tile, which within a window is the first step's.
    // Each warpgroup does it for itself: the other one writes the same.
    auto clear_beyond = [&](uint32_t of) {
      const int valid = keys - (kWindowed ? tiles - 1 : int(of - begin)) * 64;
      if (valid >= 64) return;
      smem.v.await_full(of);
      for (int p = 0; p < Panels; ++p)
        for (int at = valid * 128 + int(threadIdx.x % 128) * 16; at < kTileBytes; at += 128 * 16)
          *reinterpret_cast<uint4*>(smem.v.at(of) + p * kTileBytes + at) = uint4{};
      fence_async_proxy();  // before wgmma reads them
      warpgroup_barrier_of_four(wg);
    };
    rows.clear();
    if (mine > 0) {
      start_scores();
      wgmma_wait<0>();
      fence_registers(x);
      mask();
      if constexpr (kWindowed) clear_beyond(begin);
      bool again;
      do {  // softmax that may raise the rows' reference
        again = false;
        smem.k.release(step);
        float shrink[2];
        rows.update_reference(x, factor, shrink);
        rows.template exponentials<0>(x, part);
        rows.template exponentials<1>(x, part);
        if (step > begin) rows.rescale(shrink);
        rows.add(part);
        rows.pack(weights, x);
        for (++step; step < end; ++step) {  // P V of one step overlaps with Q K^T of the next
          start_scores();
          start_context(step - 1);
          wgmma_wait<1>();
          fence_registers(x);
          mask();
          // Exponentials in two halves: the wait for P V stands between them.
          rows.template exponentiate<0>(x, factor, part);
          fence_registers(x);
          finish_context(step - 1);
          rows.template exponentiate<1>(x, factor, part);
          rows.pack(weights, x);
          // Check for growth late so that no instruction stalls on it; rare: then recompute the scores.
          if (__any_sync(kAll, rows.exceed_ceiling(weights))) {
            rows.recompute_scores(x, smem.q.at(round) + half * S::tile_bytes, smem.k.at(step), args.head_dim & 1);
            mask();
            again = true;
            break;
          }
          smem.k.release(step);
          rows.add(part);
        }
      } while (again);
      if constexpr (!kWindowed) clear_beyond(step - 1);
      start_context(step - 1);
      finish_context(step - 1);
    }
    skip_to(item_end);
    const PackedItem stored = varlen::read_item(smem, round);  // again, so that no registers hold it in the loop
    smem.q.release(round);
    rows.total();
    const int from = stored.work.row + 64 * half;
    T* const out =
        static_cast<T*>(args.out) + (int64_t(stored.work.q_first + from) * args.heads + stored.head) * args.head_dim;
    const unsigned broken =
        store_rows<T, Panels>(smem.out.first + half * S::tile_bytes, out, int64_t(args.heads) * args.head_dim,
                              stored.work.queries - from, args.head_dim, rows);
    varlen::attend_broken<T>(args, stored.work, stored.head, from + warp_row, broken);
  }
}

template <typename T, int Panels, typename Args>
__global__ void __launch_bounds__(Shape<Panels, 2>::threads, 1) varlen_items(const __grid_constant__ CUtensorMap q_map,
                                                                             const __grid_constant__ CUtensorMap k_map,
                                                                             const __grid_constant__ CUtensorMap v_map,
                                                                             const __grid_constant__ Args args,
                                                                             const __grid_constant__ Items items) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Shape<Panels, 2>;
  extern __shared__ __align__(1024) uint8_t shared[];
  const int warp = uniform(threadIdx.x / 32), wg = warp / 4;
  if (wg < 2 * S::teams && threadIdx.x % 256 == 0) {
    SharedStorage<S>(shared, wg / 2).init();
    barrier_init_fence();
  }
  if (wg == 2 * S::teams && threadIdx.x % 128 == 0)
    for (const CUtensorMap* map : {&q_map, &k_map, &v_map}) prefetch_map(map);
  fill_ones<T, S>(shared);
  __syncthreads();
  wait_for_previous();  // the sequences' bounds may be what it left
  let_next_start();
  if (wg == 2 * S::teams) {
    fewer_registers<S::producer_registers>();
    const int t = warp % 4;
    if (t < S::teams)
      varlen::produce<Panels>(&q_map, &k_map, &v_map, args, items, SharedStorage<S>(shared, t),
                              int(t * gridDim.x + blockIdx.x), int(S::teams * gridDim.x));
  } else {
    more_registers<S::consumer_registers>();
    consume<T, Panels>(args, SharedStorage<S>(shared, wg / 2), wg);
  }
#endif
}

template <typename T, int Panels, typename Args>
const char* launch(const Args& args, uint64_t* next, cudaStream_t stream) {
  using S = Shape<Panels, 2>;
  constexpr bool bf16 = std::is_same_v<T, __nv_bfloat16>;
  CUtensorMap q_map, k_map, v_map;
  if (const char* why = varlen::make_maps(args, bf16, &q_map, &k_map, &v_map)) return why;
  constexpr auto kernel = varlen_items<T, Panels, Args>;
  if (const char* why = allow_shared_up_to<kernel>(S::bytes)) return why;
  const Items items{next, next_tag(), varlen::slots(args, varlen::kRows) * args.heads};
  const int64_t blocks = (items.count + S::teams - 1) / S::teams;
  const int grid = blocks < multiprocessors() ? int(blocks) : multiprocessors();
  return launch_dependent(kernel, unsigned(grid), S::threads, S::bytes, stream, 1, q_map, k_map, v_map, args, items);
}

template <typename T> const char* with_panels(const AttentionVarlenArgs& a, cudaStream_t stream) {
  uint64_t* const next = reinterpret_cast<const AttentionVarlenCall&>(a).next;
  return varlen::with_window(a, [=, &a](const auto& args) {
    return a.head_dim <= 64 ? launch<T, 1>(args, next, stream) : launch<T, 2>(args, next, stream);
  });
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionVarlenArgs* args, void* stream) {
  const AttentionVarlenArgs& a = *args;
  if (a.head_dim > 128) return "unsupported: head_dim above 128 (v3_hopper takes it)";
  if (a.head_dim % 8 || a.head_dim < 32) return "unsupported: head_dim (a multiple of 8 from 32 on is)";
  if (!(a.scale > 0)) return "unsupported: a scale that is not positive (v2_blockwise takes it)";
  if (a.total_k == 0) return "unsupported: no keys at all (v2_blockwise takes that)";
  const auto on = static_cast<cudaStream_t>(stream);
  switch (a.dtype) {
    case FS_FLOAT16:
      return with_panels<__half>(a, on);
    case FS_BFLOAT16:
      return with_panels<__nv_bfloat16>(a, on);
  }
  return "unsupported: float32 (the tensor cores take float16 and bfloat16; use v1_rowwise)";
}
