// Hopper, 128 keys a step: a schedule made beforehand, row sums by the tensor cores, few query rows shared by warpgroups.
// archs: sm_90a
// expects: HGMMA UTMALDG
//
// The kernel is attention_scheduled() of hopper_scheduled.cuh. A block takes a whole list: two neighbouring query tiles, or one by all its warpgroups.
#include "../common/launch.cuh"
#include "attention.cuh"
#include "hopper_scheduled.cuh"

namespace {
using namespace hopper;

constexpr int kMaxTiles = 2048;  // of keys

struct WholeLists {
  using Argument = int;
  static constexpr bool whole_lists = true;
  int q_blocks;

  struct At {
    int q_block, b, h;
  };
  template <bool Split> __device__ __forceinline__ At at(const AttentionArgs& args) const {
    // Heavy rows first within a head: the first block holds the global tokens, and causal rows grow towards the end.
    const int turn = blockIdx.x % q_blocks, bh = blockIdx.x / q_blocks;
    return {turn == 0 ? 0 : q_blocks - turn, bh / args.heads, bh % args.heads};
  }
  __device__ __forceinline__ void load_q(void* to, const CUtensorMap* map, uint64_t* barrier, int column, int tile, int h, int b) const {
    load_tile(to, map, barrier, column, tile * 64, h, b);
  }
  __device__ __forceinline__ void load_kv(void* to, const CUtensorMap* map, uint64_t* barrier, int column, int tile, int, int h_kv, int b) const {
    load_tile(to, map, barrier, column, tile * 64, h_kv, b);
  }
};

template <typename T, int Panels, int WG, bool Split> const char* launch(const AttentionArgs& args, cudaStream_t stream) {
  using S = Shape<Panels, WG, Split>;
  const int64_t q_sizes[4] = {args.batch, args.heads, args.seq_q, args.head_dim};
  const int64_t kv_sizes[4] = {args.batch, args.heads_kv, args.seq_k, args.head_dim};
  CUtensorMap q_map, k_map, v_map;
  constexpr bool bf16 = std::is_same_v<T, __nv_bfloat16>;
  if (const char* why = make_map(&q_map, bf16, args.q, q_sizes, args.q_stride)) return why;
  if (const char* why = make_map(&k_map, bf16, args.k, kv_sizes, args.k_stride)) return why;
  if (const char* why = make_map(&v_map, bf16, args.v, kv_sizes, args.v_stride)) return why;
  constexpr auto kernel = attention_scheduled<T, Panels, WG, Split, WholeLists>;
  const int kv_tiles = (args.seq_k + 63) / 64, bytes = S::shared_bytes(kv_tiles);
  if (const char* why = allow_shared_up_to<kernel>(bytes)) return why;
  const int q_tiles = (args.seq_q + 63) / 64, q_blocks = Split ? q_tiles : (q_tiles + 1) / 2;
  const int64_t grid = int64_t(q_blocks) * args.batch * args.heads;
  if (grid > INT32_MAX) return "unsupported: more than 2^31 blocks";
  kernel<<<unsigned(grid), 128 * WG, bytes, stream>>>(q_map, k_map, v_map, args, q_blocks);
  return launch_error();
}

template <typename T> const char* with_panels(const AttentionArgs& args, cudaStream_t stream) {
  // Few query tiles: several warpgroups share one, so that its list takes less time. Many: each its own. Up to 528, two that share one
  // begin a second round of blocks, which short lists do not pay for.
  const int64_t tiles = int64_t(args.batch) * args.heads * ((args.seq_q + 63) / 64);
  const int longest = args.schedule ? (args.schedule_stride - 1) / 2 : (args.seq_k + 127) / 128;  // in steps
  if (args.head_dim <= 64) {
    if (tiles <= 132 && longest > 2) return launch<T, 1, 4, true>(args, stream);
    if ((tiles <= 264 && longest > 1) || (tiles <= 528 && longest > 5)) return launch<T, 1, 2, true>(args, stream);
    return launch<T, 1, 2, false>(args, stream);
  }
  return tiles <= 132 ? launch<T, 2, 2, true>(args, stream) : launch<T, 2, 2, false>(args, stream);
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionArgs* args, void* stream) {
  if (args->head_dim > 128) return "unsupported: head_dim above 128 (v3_hopper takes it)";
  if (args->bias || !(args->scale > 0)) return "unsupported: a bias, or a scale that is not positive (v3_hopper takes them)";
  if (args->row_ptr && !args->schedule) return "unsupported: a plan without a schedule";
  if ((args->seq_k + 63) / 64 > kMaxTiles) return "unsupported: more than 131072 keys";
  switch (args->dtype) {
    case FS_FLOAT16: return with_panels<__half>(*args, static_cast<cudaStream_t>(stream));
    case FS_BFLOAT16: return with_panels<__nv_bfloat16>(*args, static_cast<cudaStream_t>(stream));
  }
  return "unsupported: float32 (the tensor cores take float16 and bfloat16; use v1_rowwise)";
}
