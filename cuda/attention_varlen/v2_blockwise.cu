// Tensor cores on 64 x 64 tiles of each sequence: mma.sync, cp.async one tile ahead, a block finds its sequence by itself.
// archs: sm_80 sm_86 sm_89 sm_90a
// expects: HMMA
//
// The structure is that of attention's v2 without lists: four warps share 64 query rows, 16 each; scores stay in registers between the
// two products. Only the tiles at the end of the keys and, under causal, on the diagonal are masked. Keys and values beyond the
// sequence's end are never read: they are the next sequence's, and its infinities would come through a weight of zero.
#include "../common/async_copy.cuh"
#include "../common/device.cuh"
#include "../common/exp2.cuh"
#include "../common/mma.cuh"
#include "sequences.cuh"

namespace {
using namespace tensor_core;
constexpr int kTile = 64, kThreads = 128;
constexpr float kLog2e = 1.4426950408889634f;

// Byte offset of a 16-byte chunk in a tile of Width elements a row, so that ldmatrix's eight rows lie in different banks.
template <int Width> __device__ __forceinline__ uint32_t place(int row, int chunk) {
  const int moved = Width % 64 == 0 ? chunk ^ (row & 7) : chunk ^ ((row >> 1) & 3);
  return uint32_t(row * Width * 2 + moved * 16);
}

// A head of one sequence: its first row, the distances in it, how many rows, and whether 16-byte pieces can be loaded.
template <typename T> struct Rows {
  const T* first;
  int64_t row_stride, column_stride;
  int rows;
  bool vectors;
};

// Starts loading rows [row, row + 64); zeros beyond the last. Each thread has whole chunks.
template <typename T, int Width> __device__ __forceinline__ void load_tile(char* tile, const Rows<T>& from, int row, int head_dim) {
  constexpr int chunks = Width / 8;
#pragma unroll 4
  for (int i = 0; i < kTile * chunks / kThreads; ++i) {
    const int piece = threadIdx.x + i * kThreads, r = piece / chunks, c = piece % chunks;
    const bool inside = row + r < from.rows && 8 * c < head_dim;
    const T* source = from.first + (inside ? (row + r) * from.row_stride + 8 * c * from.column_stride : 0);
    char* target = tile + place<Width>(r, c);
    if (from.vectors) {
      async_copy::copy16(shared_address(target), source, inside);
    } else {
      alignas(16) T eight[8];
#pragma unroll
      for (int e = 0; e < 8; ++e) eight[e] = inside ? source[e * from.column_stride] : from_float<T>(0.f);
      *reinterpret_cast<uint4*>(target) = *reinterpret_cast<uint4*>(eight);
    }
  }
}

// Two stages of K and V and q's operands in registers, or, for wide heads, one stage and q's operands read at every tile.
template <int Width> struct Shape {
  static constexpr bool wide = Width > 128;
  static constexpr int tile_bytes = kTile * Width * 2, bytes = (wide ? 3 : 5) * tile_bytes;
  static constexpr int blocks_per_sm = Width <= 32 ? 4 : Width <= 64 ? 3 : Width <= 128 ? 2 : 1;
};

template <typename T, int Width> __global__ void __launch_bounds__(kThreads, Shape<Width>::blocks_per_sm) varlen_blockwise(const __grid_constant__ AttentionVarlenArgs a, int vectors) {
  using S = Shape<Width>;
  constexpr int Steps = Width / 16, Bytes = S::tile_bytes;
  extern __shared__ __align__(128) char shared[];
  char* const q_tile = shared;
  char* const k_tile = shared + Bytes;  // stage s at s Bytes
  char* const v_tile = k_tile + (S::wide ? 1 : 2) * Bytes;

  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, pair = lane & 3;
  const varlen::Work w = varlen::work_of<kTile>(a, int(blockIdx.x / a.heads));
  if (w.row >= w.queries) return;
  const int head = int(blockIdx.x % a.heads), head_kv = head / (a.heads / a.heads_kv);
  const Rows<T> q{static_cast<const T*>(a.q) + w.q_first * a.q_stride[0] + head * a.q_stride[1], a.q_stride[0], a.q_stride[2], w.queries, bool(vectors & 1)};
  const Rows<T> k{static_cast<const T*>(a.k) + w.k_first * a.k_stride[0] + head_kv * a.k_stride[1], a.k_stride[0], a.k_stride[2], w.keys, bool(vectors & 2)};
  const Rows<T> v{static_cast<const T*>(a.v) + w.k_first * a.v_stride[0] + head_kv * a.v_stride[1], a.v_stride[0], a.v_stride[2], w.keys, bool(vectors & 4)};
  const int most = varlen::keys_of_row(a, w, w.row + kTile - 1), tiles = most > 0 ? (most + kTile - 1) / kTile : 0;

  // This thread's rows of the tile, how many keys they see, and in units of log2 their running maximum and its share of their sum.
  const int r0 = warp * 16 + lane / 4, r1 = r0 + 8;
  const int seen[2] = {varlen::keys_of_row(a, w, w.row + r0), varlen::keys_of_row(a, w, w.row + r1)};
  const int all_see = varlen::keys_of_row(a, w, w.row);  // the first row sees fewest
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f}, out[Width / 8][4] = {};
  uint32_t query[S::wide ? 1 : Steps][4];
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
    __syncthreads();  // this tile is there, and everybody is done with what the next loads overwrite
    if constexpr (S::wide) {
      load_tile<T, Width>(values, v, tile * kTile, a.head_dim);
    } else if (tile + 1 < tiles) {
      load_tile<T, Width>(k_tile + (stage ^ 1) * Bytes, k, (tile + 1) * kTile, a.head_dim);
      load_tile<T, Width>(v_tile + (stage ^ 1) * Bytes, v, (tile + 1) * kTile, a.head_dim);
    }
    async_copy::commit();
    if constexpr (!S::wide) {
      if (tile == 0) {
#pragma unroll
        for (int s = 0; s < Steps; ++s)
          ldmatrix_x4(query[s], shared_address(q_tile + place<Width>(warp * 16 + lane % 16, 2 * s + lane / 16)));
      }
    }

    // Scores: 16 rows x 64 keys, eight accumulators of 8 keys.
    float score[8][4] = {};
#pragma unroll
    for (int s = 0; s < Steps; ++s) {
      if constexpr (S::wide) ldmatrix_x4(query[0], shared_address(q_tile + place<Width>(warp * 16 + lane % 16, 2 * s + lane / 16)));
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        uint32_t key[4];
        ldmatrix_x4(key, shared_address(keys + place<Width>(n * 16 + lane % 8 + 8 * (lane / 16), 2 * s + (lane / 8) % 2)));
        mma_m16n8k16<T>(score[2 * n], query[S::wide ? 0 : s], {key[0], key[1]});
        mma_m16n8k16<T>(score[2 * n + 1], query[S::wide ? 0 : s], {key[2], key[3]});
      }
    }
    const bool partial = (tile + 1) * kTile > all_see;
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        score[n][e] *= scale;
        if (partial && tile * kTile + 8 * n + 2 * pair + (e & 1) >= seen[e / 2]) score[n][e] = -INFINITY;
      }

    // Online softmax over the four lanes that share a row.
    float shrink[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = maximum[h];
#pragma unroll
      for (int n = 0; n < 8; ++n) top = fmaxf(top, fmaxf(score[n][2 * h], score[n][2 * h + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      const float base = top == -INFINITY ? 0.f : top;  // -inf minus -inf would be NaN
      shrink[h] = exp2_approx(maximum[h] - base);
      maximum[h] = top;
      float total = 0.f;
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) total += score[n][2 * h + e] = exp2_approx(score[n][2 * h + e] - base);
      sum[h] = sum[h] * shrink[h] + total;
    }
#pragma unroll
    for (int n = 0; n < Width / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) out[n][e] *= shrink[e / 2];

    if constexpr (S::wide) {
      async_copy::wait<0>();
      __syncthreads();  // V is there, and everybody is done with K
      if (tile + 1 < tiles) load_tile<T, Width>(k_tile, k, (tile + 1) * kTile, a.head_dim);
      async_copy::commit();
    }
#pragma unroll
    for (int s = 0; s < 4; ++s) {  // 16 keys a step
      const uint32_t weights[4] = {pack<T>(score[2 * s][0], score[2 * s][1]), pack<T>(score[2 * s][2], score[2 * s][3]),
                                   pack<T>(score[2 * s + 1][0], score[2 * s + 1][1]), pack<T>(score[2 * s + 1][2], score[2 * s + 1][3])};
#pragma unroll
      for (int n = 0; n < Width / 16; ++n) {
        uint32_t value[4];
        ldmatrix_x4_trans(value, shared_address(values + place<Width>(16 * s + lane % 16, 2 * n + lane / 16)));
        mma_m16n8k16<T>(out[2 * n], weights, {value[0], value[1]});
        mma_m16n8k16<T>(out[2 * n + 1], weights, {value[2], value[3]});
      }
    }
  }

  // Each warp turns its 16 rows through its own part of the query tile into 16-byte stores.
  __syncwarp();  // every lane's reads of the query rows come before the others' writes over them
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 1);
    sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
    const float inverse = sum[h] == 0.f ? 0.f : 1.f / sum[h];  // rows without a key are zeros
#pragma unroll
    for (int n = 0; n < Width / 8; ++n)
      *reinterpret_cast<uint32_t*>(q_tile + place<Width>(h ? r1 : r0, n) + 4 * pair) = pack<T>(out[n][2 * h] * inverse, out[n][2 * h + 1] * inverse);
  }
  __syncwarp();
  for (int piece = lane; piece < 16 * (Width / 8); piece += 32) {
    const int r = warp * 16 + piece / (Width / 8), c = piece % (Width / 8);
    if (w.row + r < w.queries && 8 * c < a.head_dim)
      *reinterpret_cast<uint4*>(static_cast<T*>(a.out) + (int64_t(w.q_first + w.row + r) * a.heads + head) * a.head_dim + 8 * c) =
          *reinterpret_cast<const uint4*>(q_tile + place<Width>(r, c));
  }
}

template <typename T, int Width> const char* launch(const AttentionVarlenArgs& a, cudaStream_t stream) {
  const int64_t grid = varlen::slots(a, kTile) * a.heads;
  if (grid > INT32_MAX) return "unsupported: more than 2^31 tiles of 64 query rows";
  if (const char* why = allow_shared<varlen_blockwise<T, Width>>(Shape<Width>::bytes)) return why;
  auto vectors = [](const void* p, const int64_t* stride) { return aligned(p, 16) && stride[2] == 1 && stride[0] % 8 == 0 && stride[1] % 8 == 0; };
  const int how = vectors(a.q, a.q_stride) | vectors(a.k, a.k_stride) << 1 | vectors(a.v, a.v_stride) << 2;
  varlen_blockwise<T, Width><<<unsigned(grid), kThreads, Shape<Width>::bytes, stream>>>(a, how);
  return launch_error();
}

template <typename T> const char* by_width(const AttentionVarlenArgs& a, cudaStream_t stream) {
  if (a.head_dim <= 32) return launch<T, 32>(a, stream);
  if (a.head_dim <= 64) return launch<T, 64>(a, stream);
  if (a.head_dim <= 96) return launch<T, 96>(a, stream);
  if (a.head_dim <= 128) return launch<T, 128>(a, stream);
  if (a.head_dim <= 192) return launch<T, 192>(a, stream);
  return launch<T, 256>(a, stream);
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionVarlenArgs* args, void* stream) {
  const AttentionVarlenArgs& a = *args;
  if (a.head_dim % 8 || a.head_dim < 32 || a.head_dim > 256) return "unsupported: head_dim (a multiple of 8 from 32 to 256 is)";
  switch (a.dtype) {
    case FS_FLOAT16: return by_width<__half>(a, static_cast<cudaStream_t>(stream));
    case FS_BFLOAT16: return by_width<__nv_bfloat16>(a, static_cast<cudaStream_t>(stream));
  }
  return "unsupported: float32 on the tensor-core path, which multiplies float16 and bfloat16 (v1_rowwise takes float32)";
}
