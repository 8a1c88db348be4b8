// Tensor cores on 64 x 64 tiles: only live tiles of the list are loaded, with cp.async one tile ahead of the products.
// archs: sm_80 sm_86 sm_89 sm_90a
// expects: HMMA
// takes: fp16 bf16
// tiles: 1 per block, 3 blocks per SM
//
// What a warp does with a tile is in warp_tiles.cuh.
#include "rows.cuh"
#include "warp_tiles.cuh"

namespace {
using namespace warp_tiles;

template <typename T, int Width>
__global__ void __launch_bounds__(kThreads, Shape<Width>::blocks_per_sm) attention_blockwise(
    const __grid_constant__ AttentionArgs a, int vectors) {
  constexpr bool Double = !Shape<Width>::wide;  // two stages
  constexpr int Bytes = Shape<Width>::tile_bytes;
  extern __shared__ __align__(128) char shared[];
  char* const q_tile = shared;
  char* const k_tile = shared + Bytes;  // stage s at s Bytes
  char* const v_tile = k_tile + (Double ? 2 : 1) * Bytes;

  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, pair = lane & 3;
  const int q_tiles = (a.seq_q + kTile - 1) / kTile, k_tiles = (a.seq_k + kTile - 1) / kTile;
  const int t = q_tiles - 1 - int(blockIdx.x % q_tiles);  // the last first: under causal it is the longest
  const int head = int(blockIdx.x / q_tiles % a.heads), b = int(blockIdx.x / q_tiles / a.heads);
  const int head_kv = head / (a.heads / a.heads_kv), row0 = t * kTile;
  const Rows<T> q{static_cast<const T*>(a.q) + b * a.q_stride[0] + head * a.q_stride[1], a.q_stride[2], a.q_stride[3],
                  a.seq_q, bool(vectors & 1)};
  const Rows<T> k{static_cast<const T*>(a.k) + b * a.k_stride[0] + head_kv * a.k_stride[1], a.k_stride[2],
                  a.k_stride[3], a.seq_k, bool(vectors & 2)};
  const Rows<T> v{static_cast<const T*>(a.v) + b * a.v_stride[0] + head_kv * a.v_stride[1], a.v_stride[2],
                  a.v_stride[3], a.seq_k, bool(vectors & 4)};

  const int64_t list = int64_t(b * a.mask_stride_b + head * a.mask_stride_h) * q_tiles + t;
  const int begin = a.row_ptr ? a.row_ptr[list] : 0, end = a.row_ptr ? a.row_ptr[list + 1] : k_tiles;
  auto tile_at = [&](int i) { return i >= end ? 0 : a.row_ptr ? a.tile_index[i] : i; };
  auto code_at = [&](int i) { return i >= end || !a.row_ptr ? -1 : a.tile_code[i]; };

  Warp<T, Width> mine;
  const int r0 = warp * 16 + lane / 4, r1 = r0 + 8;  // this thread's rows of the tile
  const float scale = a.scale * kLog2e;

  int tile = tile_at(begin), code = code_at(begin), next_tile = tile_at(begin + 1), next_code = code_at(begin + 1);
  if (begin < end) {
    load_tile<T, Width>(q_tile, q, row0, a.head_dim);
    load_tile<T, Width>(k_tile, k, tile * kTile, a.head_dim);
    if constexpr (Double) load_tile<T, Width>(v_tile, v, tile * kTile, a.head_dim);
  }
  async_copy::commit();

  for (int i = begin, stage = 0; i < end; ++i) {
    char* const keys = k_tile + (Double ? stage * Bytes : 0);
    char* const values = v_tile + (Double ? stage * Bytes : 0);
    // Which keys each of the two rows sees; asked for before the wait, needed after the scores.
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
    __syncthreads();  // this tile is there, and everybody is done with what the next loads overwrite
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
    if (a.bias) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = row0 + (e < 2 ? r0 : r1);
        const int64_t at = b * a.bias_stride[0] + head * a.bias_stride[1] + row * a.bias_stride[2];
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          const int column = first + 8 * n + 2 * pair + (e & 1);
          if (row < a.seq_q && column < a.seq_k) score[n][e] += kLog2e * bias_at(a, at + column * a.bias_stride[3]);
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

    mine.weigh(score);
    if constexpr (!Double) {
      async_copy::wait<0>();
      __syncthreads();  // V is there, and everybody is done with K
      if (i + 1 < end) load_tile<T, Width>(k_tile, k, next_tile * kTile, a.head_dim);
      async_copy::commit();
    }
    mine.add(score, values);
    tile = next_tile, code = next_code, next_tile = soon_tile, next_code = soon_code;
    if constexpr (Double) stage ^= 1;
  }

  T* const to = static_cast<T*>(a.out) + b * a.out_stride[0] + head * a.out_stride[1] + row0 * a.out_stride[2];
  mine.store(q_tile, to, a.out_stride[2], a.seq_q - row0, a.head_dim);
}

template <typename T, int Width> const char* launch(const AttentionArgs& a, unsigned grid, cudaStream_t stream) {
  constexpr int bytes = Shape<Width>::bytes;
  if (const char* why = allow_shared<attention_blockwise<T, Width>>(bytes)) return why;
  const int vectors =
      has_vectors(a.q, a.q_stride, 2) | has_vectors(a.k, a.k_stride, 2) << 1 | has_vectors(a.v, a.v_stride, 2) << 2;
  attention_blockwise<T, Width><<<grid, kThreads, bytes, stream>>>(a, vectors);
  return launch_error();
}

template <typename T> const char* by_width(const AttentionArgs& a, unsigned grid, cudaStream_t stream) {
  if (a.head_dim <= 32) return launch<T, 32>(a, grid, stream);
  if (a.head_dim <= 64) return launch<T, 64>(a, grid, stream);
  if (a.head_dim <= 96) return launch<T, 96>(a, grid, stream);
  if (a.head_dim <= 128) return launch<T, 128>(a, grid, stream);
  if (a.head_dim <= 160) return launch<T, 160>(a, grid, stream);
  if (a.head_dim <= 192) return launch<T, 192>(a, grid, stream);
  return launch<T, 256>(a, grid, stream);
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionArgs* args, void* stream_) {
  const AttentionArgs& a = *args;
  if (a.head_dim % 8 || a.head_dim < 32 || a.head_dim > 256)
    return "unsupported: head_dim (a multiple of 8 from 32 to 256 is)";
  const int64_t grid = int64_t(a.batch) * a.heads * ((a.seq_q + kTile - 1) / kTile);
  if (grid > INT32_MAX) return "unsupported: more than 2^31 tiles of 64 query rows";
  auto stream = static_cast<cudaStream_t>(stream_);
  switch (a.dtype) {
    case FS_FLOAT16:
      return by_width<__half>(a, unsigned(grid), stream);
    case FS_BFLOAT16:
      return by_width<__nv_bfloat16>(a, unsigned(grid), stream);
  }
  return "unsupported: float32 on the tensor-core path, which multiplies float16 and bfloat16 (v2_blockwise_fp32 and "
         "v1_rowwise take float32)";
}
