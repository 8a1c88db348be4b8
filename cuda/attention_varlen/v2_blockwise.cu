// Tensor cores on 64 x 64 tiles of each sequence: mma.sync, cp.async one tile ahead, a block finds its sequence by
// itself.
// archs: sm_80 sm_86 sm_89 sm_90a
// expects: HMMA
// takes: fp16 bf16, window
//
// Attention's v2 without lists: what a warp does with a tile is in ../attention/warp_tiles.cuh. Only the tiles at the
// end of the keys, under causal on the diagonal and at the edges of a window are masked; those outside of it are not
// loaded. Keys and values beyond the sequence's end are never read: they are the next sequence's, and its infinities
// would come through a weight of zero.
#include "../attention/warp_tiles.cuh"
#include "../common/eight.cuh"
#include "sequence_again.cuh"

namespace {
using namespace warp_tiles;

template <typename T, int Width, typename Args>
__global__ void __launch_bounds__(kThreads, Shape<Width>::blocks_per_sm) varlen_blockwise(
    const __grid_constant__ Args a, int vectors) {
  using S = Shape<Width>;
  constexpr bool kWindowed = varlen::kWindowed<Args>;
  constexpr int Bytes = S::tile_bytes;
  extern __shared__ __align__(128) char shared[];
  char* const q_tile = shared;
  char* const k_tile = shared + Bytes;  // stage s at s Bytes
  char* const v_tile = k_tile + (S::wide ? 1 : 2) * Bytes;

  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, pair = lane & 3;
  const varlen::Work w = varlen::work_of<kTile>(a, int(blockIdx.x / a.heads));
  if (w.row >= w.queries) return;
  const int head = int(blockIdx.x % a.heads), head_kv = head / (a.heads / a.heads_kv);
  const Rows<T> q{static_cast<const T*>(a.q) + w.q_first * a.q_stride[0] + head * a.q_stride[1], a.q_stride[0],
                  a.q_stride[2], w.queries, bool(vectors & 1)};
  const Rows<T> k{static_cast<const T*>(a.k) + w.k_first * a.k_stride[0] + head_kv * a.k_stride[1], a.k_stride[0],
                  a.k_stride[2], w.keys, bool(vectors & 2)};
  const Rows<T> v{static_cast<const T*>(a.v) + w.k_first * a.v_stride[0] + head_kv * a.v_stride[1], a.v_stride[0],
                  a.v_stride[2], w.keys, bool(vectors & 4)};
  const int most = varlen::keys_of_row(a, w, w.row + kTile - 1), tiles = most > 0 ? (most + kTile - 1) / kTile : 0;
  const int begin = kWindowed ? varlen::first_of_row(a, w, w.row) / kTile : 0;

  Warp<T, Width> mine;
  const int r0 = warp * 16 + lane / 4, r1 = r0 + 8;  // this thread's rows of the tile, and how many keys they see
  const int seen[2] = {varlen::keys_of_row(a, w, w.row + r0), varlen::keys_of_row(a, w, w.row + r1)};
  const int all_see = varlen::keys_of_row(a, w, w.row);  // the keys of the first row end first
  const int from[2] = {kWindowed ? varlen::first_of_row(a, w, w.row + r0) : 0,
                       kWindowed ? varlen::first_of_row(a, w, w.row + r1) : 0};
  const int all_from = kWindowed ? varlen::first_of_row(a, w, w.row + kTile - 1) : 0;  // those of the last begin last
  const float scale = a.scale * kLog2e;

  if (tiles > 0) {
    load_tile<T, Width>(q_tile, q, w.row, a.head_dim);
    load_tile<T, Width>(k_tile, k, begin * kTile, a.head_dim);
    if constexpr (!S::wide) load_tile<T, Width>(v_tile, v, begin * kTile, a.head_dim);
  }
  async_copy::commit();

  for (int tile = begin; tile < tiles; ++tile) {
    const int stage = S::wide ? 0 : (tile - begin) & 1;
    char* const keys = k_tile + stage * Bytes;
    char* const values = v_tile + stage * Bytes;
    async_copy::wait<0>();
    __syncthreads();  // this tile has arrived, and all threads are done with what the next loads overwrite
    if constexpr (S::wide) {
      load_tile<T, Width>(values, v, tile * kTile, a.head_dim);
    } else if (tile + 1 < tiles) {
      load_tile<T, Width>(k_tile + (stage ^ 1) * Bytes, k, (tile + 1) * kTile, a.head_dim);
      load_tile<T, Width>(v_tile + (stage ^ 1) * Bytes, v, (tile + 1) * kTile, a.head_dim);
    }
    async_copy::commit();
    if (tile == begin) mine.keep_query(q_tile);
    float score[8][4] = {};
    mine.scores(score, q_tile, keys);
    const bool partial = (tile + 1) * kTile > all_see || (kWindowed && tile * kTile < all_from);
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        score[n][e] *= scale;
        const int key = tile * kTile + 8 * n + 2 * pair + (e & 1);
        if (partial && (key >= seen[e / 2] || (kWindowed && key < from[e / 2]))) score[n][e] = -INFINITY;
      }

    mine.weigh(score);
    if constexpr (S::wide) {
      async_copy::wait<0>();
      __syncthreads();  // V has arrived, and all threads are done with K
      if (tile + 1 < tiles) load_tile<T, Width>(k_tile, k, (tile + 1) * kTile, a.head_dim);
      async_copy::commit();
    }
    mine.add(score, values);
  }
  T* const to = static_cast<T*>(a.out) + (int64_t(w.q_first + w.row) * a.heads + head) * a.head_dim;
  mine.store(q_tile, to, int64_t(a.heads) * a.head_dim, w.queries - w.row, a.head_dim);
  varlen::attend_broken<T>(a, w, head, w.row + warp * 16, mine.broken());
}

template <typename T, int Width, typename Args> const char* launch(const Args& a, cudaStream_t stream) {
  const int64_t grid = varlen::slots(a, kTile) * a.heads;
  if (grid > INT32_MAX) return "unsupported: more than 2^31 tiles of 64 query rows";
  if (const char* why = allow_shared<varlen_blockwise<T, Width, Args>>(Shape<Width>::bytes)) return why;
  varlen_blockwise<T, Width, Args><<<unsigned(grid), kThreads, Shape<Width>::bytes, stream>>>(a, vectors_of(a, 2));
  return launch_error();
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionVarlenArgs* args, void* stream) {
  const AttentionVarlenArgs& a = *args;
  return dispatch_16bit(
      a.dtype,
      "unsupported: float32 on the tensor-core path, which multiplies float16 and bfloat16 (v1_rowwise takes "
      "float32)",
      [&](auto zero) {
        return with_width<32, 64, 96, 128, 192, 256>(a.head_dim, [&](auto width) {
          return varlen::with_window(a, [&](const auto& args) {
            return launch<decltype(zero), width>(args, static_cast<cudaStream_t>(stream));
          });
        });
      });
}
