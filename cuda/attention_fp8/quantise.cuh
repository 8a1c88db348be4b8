// Quantising: q, k and v of 16 bits to tiles of e4m3 with scales, by blocks of 256 threads, memory-bound.
//
// Two kernels, because the scale of a column of v needs all keys. The first quantises the tiles of q and takes maxima
// of v's columns over parts of the keys, the second quantises the tiles of k and v. A thread holds chunks of eight
// neighbouring columns.
#pragma once
#include "../common/dependent.cuh"
#include "../common/eight.cuh"
#include "../common/hopper_fp8.cuh"
#include "rotate.cuh"
#include "tiles.h"

namespace fp8 {

constexpr int kThreads = 256;

// The least power of two that brings `most` to at most 448; what is below 2^-60 of it counts as that.
__device__ __forceinline__ float scale_of(float most) {
  const int bits = __float_as_int(most / kLargest), exponent = (bits >> 23) + ((bits & 0x7fffff) != 0);
  return __int_as_float((exponent < 67 ? 67 : exponent) << 23);
}
__device__ __forceinline__ float inverse_of_scale(float scale) {  // of a power of two
  return __int_as_float(0x7f000000 - __float_as_int(scale));
}
__device__ __forceinline__ bool is_finite(float x) { return (__float_as_int(x) & 0x7f800000) != 0x7f800000; }
__device__ __forceinline__ float finite_size(float x) { return is_finite(x) ? fabsf(x) : 0.f; }

// The maximum over the block's threads, for all of them; shared: free, of eight floats.
__device__ __forceinline__ float block_maximum(float x, float* shared) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  float most = shared[0];
#pragma unroll
  for (int i = 1; i < kThreads / 32; ++i) most = fmaxf(most, shared[i]);
  return most;
}

// Rows of one head from its first on.
template <typename T> struct Source {
  const T* first;
  int64_t row, column;  // strides
  bool vectors;

  __device__ __forceinline__ Source(const void* base, const int64_t (&stride)[4], int b, int h, bool vectors)
      : first(static_cast<const T*>(base) + b * stride[0] + h * stride[1]),
        row(stride[2]),
        column(stride[3]),
        vectors(vectors) {}
  // Eight columns of a row as fp32; zeros where not inside.
  __device__ __forceinline__ void read(float (&to)[8], int64_t at, int chunk, bool inside) const {
    alignas(16) T eight[8];
    load_eight(eight, first + at * row + 8 * chunk * column, column, vectors, inside);
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = to_float(eight[i]);
  }
};

// By the block: a tile of q or k, `count` rows of it, to bytes at `to` and its scale. is_lost(row): whether the row is
// to be NaN.
template <typename T, int D, typename IsLost>
__device__ __forceinline__ void quantise_rows(const Source<T>& from, int first, int count, bool rotated, uint8_t* to,
                                              float* scale, float* shared, IsLost is_lost) {
  constexpr int kChunks = D / 8, kAtOnce = kThreads / kChunks, kRows = FP8_TILE / kAtOnce;
  const int chunk = threadIdx.x % kChunks, row0 = threadIdx.x / kChunks;
  float x[kRows][8], most = 0.f;
#pragma unroll
  for (int n = 0; n < kRows; ++n) from.read(x[n], first + row0 + n * kAtOnce, chunk, row0 + n * kAtOnce < count);
#pragma unroll
  for (int n = 0; n < kRows; ++n) {
    if (rotated) rotate_row<D>(x[n], chunk);
#pragma unroll
    for (float value : x[n]) most = fmaxf(most, finite_size(value));
  }
  const float one = scale_of(block_maximum(most, shared)), inverse = inverse_of_scale(one);
  if (threadIdx.x == 0) *scale = one;
#pragma unroll
  for (int n = 0; n < kRows; ++n) {
    const int row = row0 + n * kAtOnce;
    const bool lost = is_lost(row);
#pragma unroll
    for (float& value : x[n]) value = is_finite(value) && !lost ? value * inverse : NAN;
    *reinterpret_cast<uint2*>(to + row_byte<D>(row, 8 * chunk)) = make_uint2(
        hopper::pack_e4m3(x[n][0], x[n][1], x[n][2], x[n][3]), hopper::pack_e4m3(x[n][4], x[n][5], x[n][6], x[n][7]));
  }
}

// By the block: maxima of v's columns over one part of the keys.
template <typename T, int D>
__device__ __forceinline__ void take_maxima(const AttentionFp8Args& args, int kv, int part, bool vectors) {
  constexpr int kChunks = D / 8, kAtOnce = kThreads / kChunks;
  __shared__ float most[kAtOnce][D];
  const Source<T> v(args.v, args.v_stride, kv / args.heads_kv, kv % args.heads_kv, vectors);
  const int chunk = threadIdx.x % kChunks, lane = threadIdx.x / kChunks;
  const int keys = (args.seq_k + FP8_COLUMN_PARTS - 1) / FP8_COLUMN_PARTS;
  const int end = (part + 1) * int64_t(keys) < args.seq_k ? (part + 1) * keys : args.seq_k;
  float mine[8] = {};
#pragma unroll 4
  for (int64_t key = int64_t(part) * keys + lane; key < end; key += kAtOnce) {
    float x[8];
    v.read(x, key, chunk, true);
#pragma unroll
    for (int i = 0; i < 8; ++i) mine[i] = fmaxf(mine[i], finite_size(x[i]));
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) most[lane][8 * chunk + i] = mine[i];
  __syncthreads();
  if (threadIdx.x < D) {
    float all = 0.f;
    for (int i = 0; i < kAtOnce; ++i) all = fmaxf(all, most[i][threadIdx.x]);
    args.column_maxima[(int64_t(kv) * FP8_COLUMN_PARTS + part) * D + threadIdx.x] = all;
  }
}

template <typename T, int D>
__global__ void __launch_bounds__(kThreads) quantise_queries(const __grid_constant__ AttentionFp8Args args,
                                                             int maxima_blocks, int vectors) {
  __shared__ float shared[kThreads / 32];
  wait_for_previous();
  let_next_start();
  if (int(blockIdx.x) < maxima_blocks) {
    take_maxima<T, D>(args, blockIdx.x / FP8_COLUMN_PARTS, blockIdx.x % FP8_COLUMN_PARTS, vectors & 4);
    return;
  }
  const int q_tiles = (args.seq_q + FP8_TILE - 1) / FP8_TILE, tile = blockIdx.x - maxima_blocks;
  const int head = tile / q_tiles, first = tile % q_tiles * FP8_TILE;
  const Source<T> q(args.q, args.q_stride, head / args.heads, head % args.heads, vectors & 1);
  quantise_rows<T, D>(q, first, args.seq_q - first, args.rotate, args.q8 + int64_t(tile) * FP8_TILE * D,
                      args.q_scale + tile, shared, [](int) { return false; });
}

template <typename T, int D>
__global__ void __launch_bounds__(kThreads) quantise_keys_and_values(const __grid_constant__ AttentionFp8Args args,
                                                                     int vectors) {
  constexpr int kChunks = D / 8;
  __shared__ float shared[kThreads / 32], inverse[D];
  __shared__ int lost[FP8_TILE];
  __shared__ uint32_t staged[FP8_TILE * D / 4];
  wait_for_previous();
  let_next_start();
  const int k_tiles = (args.seq_k + FP8_TILE - 1) / FP8_TILE, tile = blockIdx.x;
  const int kv = tile / k_tiles, first = tile % k_tiles * FP8_TILE, b = kv / args.heads_kv, h = kv % args.heads_kv;
  const int chunk = threadIdx.x % kChunks, four = threadIdx.x / kChunks;
  const Source<T> v(args.v, args.v_stride, b, h, vectors & 4);

  // Four keys that lie next to each other in a column of the tile, of eight columns.
  const auto key_of = [=](int i) { return four / 4 * 16 + four % 4 * 2 + i / 2 * 8 + i % 2; };
  float x[4][8];
  if (threadIdx.x < FP8_TILE) lost[threadIdx.x] = 0;
  if (threadIdx.x < D) {
    float most = 0.f;
    for (int i = 0; i < FP8_COLUMN_PARTS; ++i)
      most = fmaxf(most, args.column_maxima[(int64_t(kv) * FP8_COLUMN_PARTS + i) * D + threadIdx.x]);
    const float scale = scale_of(most);
    inverse[threadIdx.x] = inverse_of_scale(scale);
    if (first == 0) args.v_scale[int64_t(kv) * D + threadIdx.x] = scale;
  }
  __syncthreads();
  if (four < FP8_TILE / 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v.read(x[i], first + key_of(i), chunk, first + key_of(i) < args.seq_k);
      bool finite = true;
#pragma unroll
      for (float value : x[i]) finite = finite && is_finite(value);
      if (!finite) lost[key_of(i)] = 1;
    }
  }
  __syncthreads();
  // Words of columns are staged in an order in which the threads of a row of chunks write to different banks.
  if (four < FP8_TILE / 4) {
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const int column = 8 * chunk + c;
      float of_key[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) of_key[i] = lost[key_of(i)] ? 0.f : x[i][c] * inverse[column];
      const int word = value_byte(column, key_of(0)) / 4;
      staged[word ^ chunk % 16] = hopper::pack_e4m3(of_key[0], of_key[1], of_key[2], of_key[3]);
    }
  }
  const Source<T> k(args.k, args.k_stride, b, h, vectors & 2);
  quantise_rows<T, D>(k, first, args.seq_k - first, args.rotate, args.k8 + int64_t(tile) * FP8_TILE * D,
                      args.k_scale + tile, shared, [&](int row) { return lost[row] != 0; });
  // The maximum of the block has synchronised it: all is staged.
  for (int i = threadIdx.x; i < FP8_TILE * D / 16; i += kThreads) {
    uint32_t word[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) word[n] = staged[(4 * i + n) ^ (i / 4 / 8 % 16)];
    *reinterpret_cast<uint4*>(args.v8 + int64_t(tile) * FP8_TILE * D + 16 * i) =
        make_uint4(word[0], word[1], word[2], word[3]);
  }
}

template <typename T, int D> const char* launch_quantise(const AttentionFp8Args& args, cudaStream_t stream) {
  const int vectors = vectors_of(args, sizeof(T));
  const int64_t kv = int64_t(args.batch) * args.heads_kv, maxima = kv * FP8_COLUMN_PARTS;
  const int64_t queries = int64_t(args.batch) * args.heads * ((args.seq_q + FP8_TILE - 1) / FP8_TILE);
  const int64_t keys = kv * ((args.seq_k + FP8_TILE - 1) / FP8_TILE);
  if (maxima + queries > INT32_MAX || keys > INT32_MAX) return "unsupported: more than 2^31 tiles";
  if (const char* why = launch_dependent(quantise_queries<T, D>, unsigned(maxima + queries), kThreads, 0, stream, 1,
                                         args, int(maxima), vectors))
    return why;
  return launch_dependent(quantise_keys_and_values<T, D>, unsigned(keys), kThreads, 0, stream, 1, args, vectors);
}

}  // namespace fp8
