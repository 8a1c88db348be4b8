// Attention on mma.sync for tiles of 64 rows, shared with packed attention: loads, both products, online softmax,
// stores.
//
// Four warps share a tile of 64 query rows, 16 rows each; a warp keeps its rows' maximum, sum and output in registers,
// so the only barriers are those of the shared tiles. The accumulator layout of the first product is the operand layout
// of the second. Head sizes between the widths built are padded with zeros on loading.
#pragma once
#include "../common/async_copy.cuh"
#include "../common/device.cuh"
#include "../common/exp2.cuh"
#include "../common/launch.cuh"
#include "../common/mma.cuh"

namespace warp_tiles {
using namespace tensor_core;
constexpr int kTile = 64, kThreads = 128;

// Heads up to 128 wide have two stages of K and V (the next are loaded while this tile is computed) and q's operands in
// registers; wider ones have room for one: V is loaded during Q K^T, the next K during P V.
template <int Width> struct Shape {
  static constexpr bool wide = Width > 128;
  static constexpr int tile_bytes = kTile * Width * 2, bytes = (wide ? 3 : 5) * tile_bytes;
  static constexpr int blocks_per_sm = Width <= 32 ? 4 : Width <= 64 ? 3 : Width <= 128 ? 2 : 1;
};

// Byte offset of a 16-byte chunk in a tile of Width elements a row, swizzled so that ldmatrix's eight rows are in
// different banks. Rows are a multiple of 64 bytes: of 128 bytes, where every row begins in bank 0, or with 64 over,
// where every second one does.
template <int Width> __device__ __forceinline__ uint32_t place(int row, int chunk) {
  const int moved = Width % 64 == 0 ? chunk ^ (row & 7) : chunk ^ ((row >> 1) & 3);
  return uint32_t(row * Width * 2 + moved * 16);
}

// A head's rows in memory; vectors: 16-byte loads are possible.
template <typename T> struct Rows {
  const T* first;
  int64_t row_stride, column_stride;
  int rows;
  bool vectors;
};

// Starts loading rows [row, row + 64), zeros beyond the last; each thread copies whole chunks.
template <typename T, int Width>
__device__ __forceinline__ void load_tile(char* tile, const Rows<T>& from, int row, int head_dim) {
  constexpr int chunks = Width / 8;
#pragma unroll 4
  for (int i = 0; i < kTile * chunks / kThreads; ++i) {
    const int index = threadIdx.x + i * kThreads, r = index / chunks, c = index % chunks;
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

// A warp's 16 rows of a query tile. A thread has rows 16 warp + lane / 4 and 8 further on, every fourth pair of
// columns.
template <typename T, int Width> struct Warp {
  static constexpr bool wide = Shape<Width>::wide;
  static constexpr int steps = Width / 16;  // of 16 head columns
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f},
        out[Width / 8][4] = {};  // sum: this thread's columns only
  uint32_t query[wide ? 1 : steps][4];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;

  __device__ __forceinline__ void read_query(uint32_t (&to)[4], const char* q_tile, int s) const {
    ldmatrix_x4(to, shared_address(q_tile + place<Width>(warp * 16 + lane % 16, 2 * s + lane / 16)));
  }
  // Once, after the query tile is loaded.
  __device__ __forceinline__ void keep_query(const char* q_tile) {
    if constexpr (!wide) {
#pragma unroll
      for (int s = 0; s < steps; ++s) read_query(query[s], q_tile, s);
    }
  }

  // 16 rows x 64 keys, eight accumulators of 8 keys.
  __device__ __forceinline__ void scores(float (&score)[8][4], const char* q_tile, const char* keys) {
#pragma unroll
    for (int s = 0; s < steps; ++s) {
      if constexpr (wide) read_query(query[0], q_tile, s);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        uint32_t key[4];
        ldmatrix_x4(key,
                    shared_address(keys + place<Width>(n * 16 + lane % 8 + 8 * (lane / 16), 2 * s + (lane / 8) % 2)));
        mma_m16n8k16<T>(score[2 * n], query[wide ? 0 : s], {key[0], key[1]});
        mma_m16n8k16<T>(score[2 * n + 1], query[wide ? 0 : s], {key[2], key[3]});
      }
    }
  }

  // Online softmax over the four lanes that share a row: scores (dead ones -inf) become weights. Natural: scores and
  // maxima are in natural units, else in units of log2.
  template <bool Natural = false> __device__ __forceinline__ void weigh(float (&score)[8][4]) {
    auto power = [](float x) { return exp2_approx(Natural ? x * kLog2e : x); };
    float shrink[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = maximum[h];
#pragma unroll
      for (int n = 0; n < 8; ++n) top = fmaxf(top, fmaxf(score[n][2 * h], score[n][2 * h + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      const float base = top == -INFINITY ? 0.f : top;  // -inf minus -inf would be NaN
      shrink[h] = power(maximum[h] - base);
      maximum[h] = top;
      float total = 0.f;
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) total += score[n][2 * h + e] = power(score[n][2 * h + e] - base);
      sum[h] = sum[h] * shrink[h] + total;
    }
#pragma unroll
    for (int n = 0; n < Width / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) out[n][e] *= shrink[e / 2];
  }

  // Adds the weighted values of 64 keys.
  __device__ __forceinline__ void add(const float (&score)[8][4], const char* values) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {  // 16 keys a step
      const uint32_t weights[4] = {pack<T>(score[2 * s][0], score[2 * s][1]), pack<T>(score[2 * s][2], score[2 * s][3]),
                                   pack<T>(score[2 * s + 1][0], score[2 * s + 1][1]),
                                   pack<T>(score[2 * s + 1][2], score[2 * s + 1][3])};
#pragma unroll
      for (int n = 0; n < Width / 16; ++n) {
        uint32_t value[4];
        ldmatrix_x4_trans(value, shared_address(values + place<Width>(16 * s + lane % 16, 2 * n + lane / 16)));
        mma_m16n8k16<T>(out[2 * n], weights, {value[0], value[1]});
        mma_m16n8k16<T>(out[2 * n + 1], weights, {value[2], value[3]});
      }
    }
  }

  // A key more, of value zero and of this score (natural units, as the others).
  __device__ __forceinline__ void add_sink(float sink) {
    if (sink == -INFINITY) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float top = fmaxf(maximum[h], sink), shrink = exp2_approx((maximum[h] - top) * kLog2e);
      sum[h] = sum[h] * shrink + ((lane & 3) == 0 ? exp2_approx((sink - top) * kLog2e) : 0.f);
#pragma unroll
      for (int n = 0; n < Width / 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) out[n][2 * h + e] *= shrink;
    }
  }

  // Which of this thread's two rows of the warp's 16 hold a NaN, as bits. (Infinities of both signs count too.)
  __device__ __forceinline__ unsigned broken() const {
    unsigned rows = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float all = 0.f;
#pragma unroll
      for (int n = 0; n < Width / 8; ++n) all += out[n][2 * h] + out[n][2 * h + 1];
      if (all != all) rows |= 1u << (lane / 4 + 8 * h);
    }
    return rows;
  }

  // Stores the rows divided by their sums, as 16-byte stores through the warp's rows of the query tile; rows without a
  // live key are zeros. to: the tile's first row, rows: how many of its 64 exist.
  __device__ __forceinline__ void store(char* q_tile, T* to, int64_t stride, int rows, int head_dim) {
    const int r0 = warp * 16 + lane / 4, r1 = r0 + 8, pair = lane & 3;
    __syncwarp();  // every lane's reads of the query rows come before the others' writes over them
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 1);
      sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
      const float inverse = sum[h] == 0.f ? 0.f : 1.f / sum[h];
#pragma unroll
      for (int n = 0; n < Width / 8; ++n)
        *reinterpret_cast<uint32_t*>(q_tile + place<Width>(h ? r1 : r0, n) + 4 * pair) =
            pack<T>(out[n][2 * h] * inverse, out[n][2 * h + 1] * inverse);
    }
    __syncwarp();
    for (int index = lane; index < 16 * (Width / 8); index += 32) {
      const int r = warp * 16 + index / (Width / 8), c = index % (Width / 8);
      if (r < rows && 8 * c < head_dim)
        *reinterpret_cast<uint4*>(to + r * stride + 8 * c) =
            *reinterpret_cast<const uint4*>(q_tile + place<Width>(r, c));
    }
  }
};

}  // namespace warp_tiles
