// Tensor cores on 64 x 64 tiles of each sequence: mma.sync, cp.async one tile ahead, a block finds its sequence by
// itself.
// archs: sm_80 sm_86 sm_89 sm_90a
// expects: HMMA
// takes: fp16 bf16
//
// Attention's v2 without lists: what a warp does with a tile is in ../attention/warp_tiles.cuh. Only the tiles at the
// end of the keys and, under causal, on the diagonal are masked. Keys and values beyond the sequence's end are never
// read: they are the next sequence's, and its infinities would come through a weight of zero.
#include "../attention/row_loop.cuh"
#include "../attention/warp_tiles.cuh"
#include "../common/eight.cuh"
#include "sequences.cuh"

namespace {
using namespace warp_tiles;

// attend_again for rows of a sequence, as attention on that sequence alone.
template <typename T, int Chunks>
__device__ __attribute__((noinline)) void attend_again(const AttentionVarlenArgs& a, const varlen::Work& w, int head,
                                                       int row0, unsigned rows) {
  AttentionArgs one{};
  one.q = static_cast<const T*>(a.q) + w.q_first * a.q_stride[0];
  one.k = static_cast<const T*>(a.k) + w.k_first * a.k_stride[0];
  one.v = static_cast<const T*>(a.v) + w.k_first * a.v_stride[0];
  one.out = static_cast<T*>(a.out) + int64_t(w.q_first) * a.heads * a.head_dim;
  for (int i = 0; i < 3; ++i) {  // row, head, column of head, row, column
    const int to = i == 2 ? 3 : 2 - i;
    one.q_stride[to] = a.q_stride[i], one.k_stride[to] = a.k_stride[i], one.v_stride[to] = a.v_stride[i];
  }
  one.out_stride[1] = a.head_dim, one.out_stride[2] = int64_t(a.heads) * a.head_dim;
  one.batch = 1, one.heads = a.heads, one.heads_kv = a.heads_kv, one.head_dim = a.head_dim, one.scale = a.scale;
  one.seq_q = w.queries, one.seq_k = w.keys;
  const int64_t diagonal = a.causal ? int64_t(w.keys) - w.queries + 1 : row_loop::kEveryKey;
  row_loop::attend_again<T, Chunks>(one, {}, 0, head, row0, rows, diagonal);
}

template <typename T, int Width>
__global__ void __launch_bounds__(kThreads, Shape<Width>::blocks_per_sm) varlen_blockwise(
    const __grid_constant__ AttentionVarlenArgs a, int vectors) {
  using S = Shape<Width>;
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

  Warp<T, Width> mine;
  const int r0 = warp * 16 + lane / 4, r1 = r0 + 8;  // this thread's rows of the tile, and how many keys they see
  const int seen[2] = {varlen::keys_of_row(a, w, w.row + r0), varlen::keys_of_row(a, w, w.row + r1)};
  const int all_see = varlen::keys_of_row(a, w, w.row);  // the first row sees fewest
  const float scale = a.scale * kLog2e;

  if (tiles > 0) {
    load_tile<T, Width>(q_tile, q, w.row, a.head_dim);
    load_tile<T, Width>(k_tile, k, 0, a.head_dim);
    if constexpr (!S::wide) load_tile<T, Width>(v_tile, v, 0, a.head_dim);
  }
  async_copy::commit();

  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = S::wide ? 0 : tile & 1;
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
    if (tile == 0) mine.keep_query(q_tile);
    float score[8][4] = {};
    mine.scores(score, q_tile, keys);
    const bool partial = (tile + 1) * kTile > all_see;
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        score[n][e] *= scale;
        if (partial && tile * kTile + 8 * n + 2 * pair + (e & 1) >= seen[e / 2]) score[n][e] = -INFINITY;
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
  if (const unsigned rows = row_loop::united(mine.broken()))
    attend_again<T, (Width + 63) / 64>(a, w, head, w.row + warp * 16, rows);
}

template <typename T, int Width> const char* launch(const AttentionVarlenArgs& a, cudaStream_t stream) {
  const int64_t grid = varlen::slots(a, kTile) * a.heads;
  if (grid > INT32_MAX) return "unsupported: more than 2^31 tiles of 64 query rows";
  if (const char* why = allow_shared<varlen_blockwise<T, Width>>(Shape<Width>::bytes)) return why;
  varlen_blockwise<T, Width><<<unsigned(grid), kThreads, Shape<Width>::bytes, stream>>>(a, vectors_of(a, 2));
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
          return launch<decltype(zero), width>(a, static_cast<cudaStream_t>(stream));
        });
      });
}
