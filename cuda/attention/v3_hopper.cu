// Hopper tiles: wgmma fed by TMA; warpgroups of 64 query rows share the KV tiles that any of them needs.
// archs: sm_90a
// expects: HGMMA UTMALDG
// takes: fp16 bf16, tma
// tiles: 1 per block, 4 blocks per SM, up to 2 tiles per SM
// tiles: 2 per block, 2 blocks per SM
//
// A block is WG warpgroups. It first merges their tile lists into one schedule in shared memory (a step is one KV tile,
// with a code per warpgroup; a warpgroup that does not need the tile skips it). K and V of a step arrive by TMA in a
// ring of stages. There is no producer warp: the last warp to release a stage refills it, so nobody waits for an empty
// stage. The product O += P V of a step overlaps with the softmax of the next.
#include "../common/dependent.cuh"
#include "../common/launch.cuh"
#include "hopper_forward.cuh"
#include "hopper_launch.cuh"
#include "hopper_mask.cuh"
#include "hopper_memory.cuh"
#include "hopper_pipeline.cuh"
#include "hopper_tile_lists.cuh"

namespace {
using namespace hopper;

template <typename T, int Panels, int WG, bool Bias>
__global__ void __launch_bounds__(128 * WG, ForwardShape<Panels, WG, Bias>::blocks_per_sm) attention_hopper(
    const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
    const __grid_constant__ CUtensorMap v_map, const __grid_constant__ AttentionArgs args, int q_blocks) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = ForwardShape<Panels, WG, Bias>;
  extern __shared__ uint8_t raw[];
  const ForwardMemory<S> memory(raw);
  const Maps maps{&q_map, &k_map, &v_map};
  int* range_end = reinterpret_cast<int*>(memory.released + S::stages);
  const int kv_tiles = (args.seq_k + 63) / 64;
  int* order = reinterpret_cast<int*>(memory.full_k) + S::barrier_bytes / 4;
  int* codes = order + kv_tiles;
  const int warp = uniform(threadIdx.x / 32), lane = threadIdx.x % 32, wg = warp / 4;
  // Heavy rows first within a head: the first block holds the global tokens, and causal rows grow towards the end.
  const int turn = blockIdx.x % q_blocks, bh = blockIdx.x / q_blocks, q_block = turn == 0 ? 0 : q_blocks - turn;
  const int b = bh / args.heads, h = bh % args.heads, h_kv = h / (args.heads / args.heads_kv);
  const int q_tiles = (args.seq_q + 63) / 64;
  if (threadIdx.x == 0) memory.init(maps);
  wait_for_previous();
  let_next_start();
  mark_tiles<WG>(args, b, h, q_block, q_tiles, kv_tiles, wg, codes);
  if (warp == 0) order_tiles<WG>(codes, kv_tiles, order, range_end);
  __syncthreads();
  const int steps = uniform(range_end[2 * WG - 2]);
  const int begin = uniform(WG == 1 || wg == 0 ? 0 : range_end[0]);
  const int end = uniform(WG == 1 || wg == 1 ? steps : range_end[1]);

  auto load = [&](int step) { memory.load_keys(maps, step, FirstKey{order}, h_kv, b); };
  if (threadIdx.x == 0) {
    memory.load_queries(maps, [=](int w) { return (q_block * WG + w) * 64; }, h, b);
    for (int step = 0; step < S::stages && step < steps; ++step) load(step);
  }
  uint8_t* q_tile = memory.q + wg * Panels * kTileBytes;
  barrier_wait(memory.full_q, 0);
  uint32_t q_fragments[S::q_in_registers ? 4 * Panels : 1][4];
  if constexpr (S::q_in_registers) read_fragments(q_fragments, q_tile, warp, lane);
  const int column = 2 * (lane % 4), row = 16 * (warp % 4) + lane / 4;  // the thread's first accumulator
  const int q_row = (q_block * WG + wg) * 64 + row;
  const float factor = Bias ? kLog2e : args.scale * kLog2e;  // of the scores in x, to powers of two
  Context<T, Panels> context;
  float x[32];
  OnlineSoftmax<Bias> softmax;

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
  auto read = [&](TileMask& mask) { read_bits(args, row, column, mask); };
  auto apply = [&](const TileMask& mask) {
    if constexpr (Bias) add_bias<T>(x, args, b, h, q_row, mask.tile, column);
    mask_scores(x, args, mask, column);
  };
  memory.skip(0, begin, release);
  overlap(context, softmax, x, factor, begin, end, TileSteps{order, codes, kv_tiles, wg}, read, start_scores, apply,
          start_context, finish_context, [](int) {});
  memory.skip(end, steps, release);

  float inverse[2];
  softmax.invert_sums(inverse);
  const int tile = q_block * WG + wg;
  store_rows<T, Panels>(q_tile, wg, args, b, h, tile,
                        [&](int i, int r) { return begin == end ? 0.f : context.o[i / 32][i % 32] * inverse[r]; });
#endif
}

template <typename T, int Panels, int WG, bool Bias>
const char* launch(const AttentionArgs& args, cudaStream_t stream) {
  CUtensorMap q_map, k_map, v_map;
  if (const char* why = make_maps<T>(args, &q_map, &k_map, &v_map)) return why;
  constexpr auto kernel = attention_hopper<T, Panels, WG, Bias>;
  const int bytes = ForwardShape<Panels, WG, Bias>::bytes + 4 * ((args.seq_k + 63) / 64) * (WG + 1);
  if (bytes > kMaxSharedBytes) return "unsupported: too many keys for the schedule in shared memory";
  if (const char* why = allow_shared_up_to<kernel>(bytes)) return why;
  const int q_tiles = (args.seq_q + 63) / 64, q_blocks = (q_tiles + WG - 1) / WG;
  const int64_t grid = int64_t(q_blocks) * args.batch * args.heads;
  if (grid > INT32_MAX) return "unsupported: more than 2^31 blocks";
  return launch_dependent(kernel, unsigned(grid), 128 * WG, bytes, stream, 1, q_map, k_map, v_map, args, q_blocks);
}

template <typename T, int Panels> const char* with_warpgroups(const AttentionArgs& args, cudaStream_t stream) {
  // A scale that is not positive turns the order of the scores round, so the maximum has to be taken of scaled ones, as
  // with a bias; a bias needs the registers that a second resident block would.
  if (args.bias || !(args.scale > 0)) return launch<T, Panels, 1, true>(args, stream);
  // One warpgroup a block while two would leave multiprocessors idle; two share their KV tiles once there is enough
  // work.
  const int64_t tiles = int64_t(args.batch) * args.heads * ((args.seq_q + 63) / 64);
  return tiles <= 2 * 132 ? launch<T, Panels, 1, false>(args, stream) : launch<T, Panels, 2, false>(args, stream);
}

template <typename T> const char* with_panels(const AttentionArgs& args, cudaStream_t stream) {
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

FUSESCOPE_KERNEL(const AttentionArgs* args, void* stream) {
  switch (args->dtype) {
    case FS_FLOAT16:
      return with_panels<__half>(*args, static_cast<cudaStream_t>(stream));
    case FS_BFLOAT16:
      return with_panels<__nv_bfloat16>(*args, static_cast<cudaStream_t>(stream));
  }
  return "unsupported: float32 (the tensor cores take float16 and bfloat16; use v1_rowwise)";
}
