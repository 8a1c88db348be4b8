// Tensor cores on 64 x 64 tiles: only live tiles of the list are loaded, with cp.async one tile ahead of the products.
// archs: sm_80 sm_86 sm_89 sm_90a
// expects: HMMA
// takes: fp16 bf16 softcap+sinks score
// tiles: 1 per block, 3 blocks per SM
//
// warp_tiles.cuh has the warp's part: loads, products, softmax, stores.
#include "row_again.cuh"
#include "score.cuh"
#include "softcap.cuh"
#include "warp_tiles.cuh"

namespace {
using namespace warp_tiles;

struct PlainArgs : AttentionArgs {
  static constexpr bool given = false;
  __device__ __forceinline__ AttentionScored scored() const { return {}; }
};
// With a bias, softcap, expression or sinks: scores are in natural units then (row_loop.cuh says why).
struct ScoredArgs : AttentionArgs {
  static constexpr bool given = true;
  AttentionScored more;
  __device__ __forceinline__ const AttentionScored& scored() const { return more; }
};

template <typename T, int Width, typename Args>
__global__ void __launch_bounds__(kThreads, Shape<Width>::blocks_per_sm) attention_blockwise(
    const __grid_constant__ Args a, int vectors) {
  constexpr bool Double = !Shape<Width>::wide;  // two stages
  constexpr int Bytes = Shape<Width>::tile_bytes;
  extern __shared__ __align__(128) char shared[];
  char* const q_tile = shared;
  char* const k_tile = shared + Bytes;  // stage s at s Bytes
  char* const v_tile = k_tile + (Double ? 2 : 1) * Bytes;

  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, pair = lane & 3;
  const QueryTile at(a, blockIdx.x);
  const int row0 = at.first_row(), begin = at.begin, end = at.end;
  const Rows<T> q{at.query<T>(a), a.q_stride[2], a.q_stride[3], a.seq_q, bool(vectors & 1)};
  const Rows<T> k{at.keys<T>(a), a.k_stride[2], a.k_stride[3], a.seq_k, bool(vectors & 2)};
  const Rows<T> v{at.values<T>(a), a.v_stride[2], a.v_stride[3], a.seq_k, bool(vectors & 4)};

  auto tile_at = [&](int i) { return i >= end ? 0 : a.row_ptr ? a.tile_index[i] : i; };
  auto code_at = [&](int i) { return i >= end || !a.row_ptr ? -1 : a.tile_code[i]; };

  Warp<T, Width> mine;
  const int r0 = warp * 16 + lane / 4, r1 = r0 + 8;  // this thread's rows of the tile
  const float scale = Args::given ? a.scale : a.scale * kLog2e;

  int tile = tile_at(begin), code = code_at(begin), next_tile = tile_at(begin + 1), next_code = code_at(begin + 1);
  const int position = row0 + r0 + a.seq_k - a.seq_q;
  const ExpressedRow rows[2] = {{a.scored(), at.b, at.head, position}, {a.scored(), at.b, at.head, position + 8}};
  if (begin < end) {
    load_tile<T, Width>(q_tile, q, row0, a.head_dim);
    load_tile<T, Width>(k_tile, k, tile * kTile, a.head_dim);
    if constexpr (Double) load_tile<T, Width>(v_tile, v, tile * kTile, a.head_dim);
  }
  async_copy::commit();

  for (int i = begin, stage = 0; i < end; ++i) {
    char* const keys = k_tile + (Double ? stage * Bytes : 0);
    char* const values = v_tile + (Double ? stage * Bytes : 0);
    // Which keys each of the two rows sees: loaded before the wait, used after the scores.
    const int first = tile * kTile, live = a.seq_k - first < kTile ? a.seq_k - first : kTile;
    const uint64_t edge = live == kTile ? ~0ull : (1ull << live) - 1;
    uint64_t word0 = edge, word1 = edge;
    const bool partial = code >= 0 || live < kTile;
    if (code >= 0) {
      word0 = a.bitmaps[int64_t(code) * kTile + r0];
      word1 = a.bitmaps[int64_t(code) * kTile + r1];
    }
    const int soon_tile = tile_at(i + 2), soon_code = code_at(i + 2);

    async_copy::wait<0>();
    __syncthreads();  // this tile has arrived, and all threads are done with what the next loads overwrite
    if constexpr (Double) {
      if (i + 1 < end) {
        load_tile<T, Width>(k_tile + (stage ^ 1) * Bytes, k, next_tile * kTile, a.head_dim);
        load_tile<T, Width>(v_tile + (stage ^ 1) * Bytes, v, next_tile * kTile, a.head_dim);
      }
    } else {
      load_tile<T, Width>(values, v, first, a.head_dim);
    }
    async_copy::commit();
    if (i == begin) mine.keep_query(q_tile);
    float score[8][4] = {};
    mine.scores(score, q_tile, keys);
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) score[n][e] *= scale;
    if constexpr (Args::given) {
      const float softcap = a.more.softcap, first_float = float(first + 2 * pair);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = row0 + (e < 2 ? r0 : r1);
        const int64_t bias = at.b * a.bias_stride[0] + at.head * a.bias_stride[1] + row * a.bias_stride[2];
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          const int column = first + 8 * n + 2 * pair + (e & 1);
          if constexpr (kExpressed)
            score[n][e] = rows[e / 2](score[n][e], column, first_float, float(8 * n + (e & 1)));
          else if (softcap > 0.f)
            score[n][e] = capped(score[n][e], softcap);
          if (a.bias && row < a.seq_q && column < a.seq_k) score[n][e] += bias_at(a, bias + column * a.bias_stride[3]);
        }
      }
    }
    if (partial) {
      word0 >>= 2 * pair;
      word1 >>= 2 * pair;
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (!((e < 2 ? word0 : word1) >> (8 * n + (e & 1)) & 1)) score[n][e] = -INFINITY;
    }

    mine.template weigh<Args::given>(score);
    if constexpr (!Double) {
      async_copy::wait<0>();
      __syncthreads();  // V has arrived, and all threads are done with K
      if (i + 1 < end) load_tile<T, Width>(k_tile, k, next_tile * kTile, a.head_dim);
      async_copy::commit();
    }
    mine.add(score, values);
    tile = next_tile, code = next_code, next_tile = soon_tile, next_code = soon_code;
    if constexpr (Double) stage ^= 1;
  }

  if constexpr (Args::given)
    if (a.more.sinks) mine.add_sink(a.more.sinks[at.head]);
  mine.store(q_tile, at.out<T>(a), a.out_stride[2], a.seq_q - row0, a.head_dim);
  row_again::attend_broken<T>(a, a.scored(), at.b, at.head, row0 + warp * 16, mine.broken());
}

template <typename T, int Width, typename Args> const char* launch(const Args& a, unsigned grid, cudaStream_t stream) {
  constexpr int bytes = Shape<Width>::bytes;
  if (const char* why = allow_shared<attention_blockwise<T, Width, Args>>(bytes)) return why;
  attention_blockwise<T, Width, Args><<<grid, kThreads, bytes, stream>>>(a, vectors_of(a, 2));
  return launch_error();
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionArgs* args, void* stream) {
  const AttentionArgs& a = *args;
  const int64_t grid = QueryTile::blocks(a);
  if (grid > INT32_MAX) return "unsupported: more than 2^31 tiles of 64 query rows";
  if (const char* why = refused_by_expression(a)) return why;
  const AttentionScored scored = take_scored(a);
  return dispatch_16bit(
      a.dtype,
      "unsupported: float32 on the tensor-core path, which multiplies float16 and bfloat16 (v2_blockwise_fp32 and "
      "v1_rowwise take float32)",
      [&](auto zero) {
        return with_width<32, 64, 96, 128, 160, 192, 256>(a.head_dim, [&](auto width) {
          using T = decltype(zero);
          const auto on = static_cast<cudaStream_t>(stream);
          if constexpr (!is_built<T, width, width == 256 ? 64 : 32>()) {
            return kOtherBuild;
          } else {
            if constexpr (!kExpressed)
              if (!a.bias && !scored.given()) return launch<T, width>(PlainArgs{a}, unsigned(grid), on);
            return launch<T, width>(ScoredArgs{a, scored}, unsigned(grid), on);
          }
        });
      });
}
