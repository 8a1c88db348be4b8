// Hopper tiles: wgmma fed by TMA; one or two warpgroups of 64 query rows of a sequence share its KV tiles.
// archs: sm_90a
// expects: HGMMA UTMALDG
// takes: fp16 bf16, scale>0, tma, window
//
// The pipeline is that of attention's v3 (hopper_pipeline.cuh) over dense tiles: K and V of a step arrive by TMA in a
// ring of stages, the last warp to release a stage refills it, and O += P V of a step overlaps with the softmax of the
// next. Every warpgroup's steps are neighbouring tiles from the first on, so there is no schedule; under causal the
// first warpgroup stops earlier. Within a window the steps begin at the first tile that the block's rows see, and the
// second warpgroup may begin later; only tiles at the window's edges are masked. What TMA brings beyond the sequence's
// end are the next sequence's rows: scores there are masked, and values set to zero before the last product.
#include "../attention/hopper_memory.cuh"
#include "../attention/hopper_pipeline.cuh"
#include "../attention/hopper_store.cuh"
#include "../common/dependent.cuh"
#include "../common/device.cuh"
#include "packed_maps.cuh"
#include "sequence_again.cuh"
#include "window_mask.cuh"

namespace {
using namespace hopper;

// The first key of a step, in the packed rows.
struct PackedKey {
  int first;
  __device__ __forceinline__ int operator()(int step) const { return first + step * 64; }
};

// Rows of V beyond the sequence's end become zeros. Each warpgroup does it for itself: the other one writes the same.
template <typename S>
__device__ __forceinline__ void clear_beyond(const ForwardMemory<S>& memory, int step, int keys, int wg) {
  const int valid = keys - step * 64;
  if (valid >= 64) return;
  uint8_t* v = memory.v(step);
  memory.await_v(step);
  for (int p = 0; p < S::panels; ++p)
    for (int at = valid * 128 + int(threadIdx.x % 128) * 16; at < kTileBytes; at += 128 * 16)
      *reinterpret_cast<uint4*>(v + p * kTileBytes + at) = uint4{};
  fence_async_proxy();  // before wgmma reads them
  warpgroup_barrier(wg);
}

template <typename T, int Panels, int WG, typename Args>
__global__ void __launch_bounds__(128 * WG, ForwardShape<Panels, WG>::blocks_per_sm) varlen_hopper(
    const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
    const __grid_constant__ CUtensorMap v_map, const __grid_constant__ Args args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = ForwardShape<Panels, WG>;
  constexpr bool kWindowed = varlen::kWindowed<Args>;
  extern __shared__ uint8_t raw[];
  const ForwardMemory<S> memory(raw);
  const Maps maps{&q_map, &k_map, &v_map};
  const int warp = uniform(threadIdx.x / 32), lane = threadIdx.x % 32, wg = warp / 4;
  wait_for_previous();  // the sequences' bounds may be what it left
  let_next_start();
  const varlen::Work w = varlen::work_of<64 * WG>(args, int(blockIdx.x / args.heads));
  if (w.row >= w.queries) return;
  const int head = int(blockIdx.x % args.heads), head_kv = head / (args.heads / args.heads_kv);
  // A warpgroup's steps are the tiles that its rows see, counted from the first that the block's rows see.
  const int base = kWindowed ? varlen::first_of_row(args, w, w.row) / 64 : 0;
  auto steps_of = [&](int group) {
    const int first = w.row + 64 * group, last = first + 63 < w.queries ? first + 63 : w.queries - 1;
    const int keys = first < w.queries ? varlen::keys_of_row(args, w, last) : 0;
    return keys > 0 ? (keys + 63) / 64 - base : 0;
  };
  const int end = uniform(steps_of(wg)), other = WG == 1 ? 0 : steps_of(1 - wg);
  const int begin = kWindowed && end > 0 ? uniform(varlen::first_of_row(args, w, w.row + 64 * wg) / 64 - base) : 0;
  const int steps = uniform(end > other ? end : other);
  if (threadIdx.x == 0) memory.init(maps);
  __syncthreads();

  auto load = [&](int step) { memory.load_keys(maps, step, PackedKey{w.k_first + 64 * base}, head_kv, 0); };
  if (threadIdx.x == 0) {
    memory.load_queries(maps, [=](int g) { return w.q_first + w.row + 64 * g; }, head, 0);
    for (int step = 0; step < S::stages && step < steps; ++step) load(step);
  }
  uint8_t* q_tile = memory.q + wg * S::tile_bytes;
  barrier_wait(memory.full_q, 0);
  uint32_t q_fragments[S::q_in_registers ? 4 * Panels : 1][4];
  if constexpr (S::q_in_registers) read_fragments(q_fragments, q_tile, warp, lane);
  const int column = 2 * (lane % 4), row = w.row + 64 * wg + 16 * (warp % 4) + lane / 4;  // the thread's first element
  const int seen[2] = {varlen::keys_of_row(args, w, row), varlen::keys_of_row(args, w, row + 8)};
  const int all_see = uniform(varlen::keys_of_row(args, w, w.row + 64 * wg));  // the first row sees fewest
  Context<T, Panels> context;
  float x[32];
  OnlineSoftmax<> softmax;

  auto release = [&](int step) {
    __syncwarp();
    if (lane == 0 && step + S::stages < steps && memory.last_to_release(step)) load(step + S::stages);
  };
  auto start_scores = [&](int step) {
    const uint8_t* k = memory.k(step);
    memory.await_k(step);
    start_product<T, Panels, S::q_in_registers>(x, q_tile, q_fragments, k);
  };
  auto start_context = [&](int step) {
    const uint8_t* v = memory.v(step);
    memory.await_v(step);
    context.start(v, step > begin);
  };
  auto finish_context = [&](int step) {
    context.finish();
    release(step);
  };
  auto apply = [&](int step) {
    if constexpr (kWindowed) {
      const int tile_row = w.row + 64 * wg;
      return varlen::mask_window(x, tile_row + varlen::diagonal_of(args, w), varlen::width_of(args), w.keys,
                                 (base + step) * 64, row - tile_row, column);
    }
    if (step * 64 + 64 <= all_see) return;
#pragma unroll
    for (int i = 0; i < 32; ++i)
      if (step * 64 + 8 * (i / 4) + column + (i & 1) >= seen[i & 2 ? 1 : 0]) x[i] = -INFINITY;
  };
  if constexpr (kWindowed) memory.skip(0, begin, release);
  overlap(
      context, softmax, x, args.scale * kLog2e, begin, end, [](int step) { return step; }, [](int) {}, start_scores,
      apply, start_context, finish_context, [&](int step) { clear_beyond(memory, step, w.keys - 64 * base, wg); });
  memory.skip(end, steps, release);

  float inverse[2];
  softmax.invert_sums(inverse);
  T* out = static_cast<T*>(args.out) + (int64_t(w.q_first + w.row + 64 * wg) * args.heads + head) * args.head_dim;
  const unsigned broken = store_tile<T, Panels>(
      q_tile, wg, out, int64_t(args.heads) * args.head_dim, w.queries - w.row - 64 * wg, args.head_dim,
      [&](int i, int r) { return end == 0 ? 0.f : context.o[i / 32][i % 32] * inverse[r]; });
  varlen::attend_broken<T>(args, w, head, w.row + 64 * wg + 16 * (warp % 4), broken);
#endif
}

template <typename T, int Panels, int WG, typename Args> const char* launch(const Args& args, cudaStream_t stream) {
  constexpr int bytes = ForwardShape<Panels, WG>::bytes;
  constexpr bool bf16 = std::is_same_v<T, __nv_bfloat16>;
  CUtensorMap q_map, k_map, v_map;
  if (const char* why = varlen::make_maps(args, bf16, &q_map, &k_map, &v_map)) return why;
  if (const char* why = allow_shared<varlen_hopper<T, Panels, WG, Args>>(bytes)) return why;
  const int64_t grid = varlen::slots(args, 64 * WG) * args.heads;
  if (grid > INT32_MAX) return "unsupported: more than 2^31 blocks";
  return launch_dependent(varlen_hopper<T, Panels, WG, Args>, unsigned(grid), 128 * WG, bytes, stream, 1, q_map, k_map,
                          v_map, args);
}

template <typename T, int Panels, typename Args> const char* with_warpgroups(const Args& args, cudaStream_t stream) {
  // One warpgroup a block while two would leave multiprocessors idle; two share their KV tiles once there is enough
  // work.
  return int64_t(args.heads) * args.total_q <= 2 * 64 * multiprocessors() ? launch<T, Panels, 1>(args, stream)
                                                                          : launch<T, Panels, 2>(args, stream);
}

template <typename T, typename Args> const char* with_panels(const Args& args, cudaStream_t stream) {
  switch ((args.head_dim + 63) / 64) {
    case 1:
      return with_warpgroups<T, 1>(args, stream);
    case 2:
      return with_warpgroups<T, 2>(args, stream);
    case 3:
      return with_warpgroups<T, 3>(args, stream);
    case 4:
      return with_warpgroups<T, 4>(args, stream);
  }
  return "unsupported: head_dim above 256";
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionVarlenArgs* args, void* stream) {
  const AttentionVarlenArgs& a = *args;
  if (a.head_dim % 8 || a.head_dim < 32 || a.head_dim > 256)
    return "unsupported: head_dim (a multiple of 8 from 32 to 256 is)";
  if (!(a.scale > 0)) return "unsupported: a scale that is not positive (v2_blockwise takes it)";
  if (a.total_k == 0) return "unsupported: no keys at all (v2_blockwise takes that)";
  const auto on = static_cast<cudaStream_t>(stream);
  const auto of_type = [&](auto zero) {
    using T = decltype(zero);
    return varlen::with_window(a, [=](const auto& args) { return with_panels<T>(args, on); });
  };
  switch (a.dtype) {
    case FS_FLOAT16:
      return of_type(__half{});
    case FS_BFLOAT16:
      return of_type(__nv_bfloat16{});
  }
  return "unsupported: float32 (the tensor cores take float16 and bfloat16; use v1_rowwise)";
}
