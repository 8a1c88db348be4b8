// What the kernel of one launch is given, and how it divides a layer.
#pragma once
#include "../common/cooperative.cuh"
#include "../common/divisor.cuh"
#include "../common/eight.cuh"
#include "../common/launch.cuh"
#include "decoder_layers.cuh"

namespace decoder {
constexpr int THREADS = 256, WARPS = THREADS / 32;  // of the consumer warps; the producer warps come after them
constexpr int MOST_ROWS = 8;                        // sequences
constexpr int MOST_LAYERS = 80;                     // their pointers are parameters of the kernel
constexpr int VECTORS = 18;                         // norms, biases and scales of a layer, at its beginning
constexpr int SCRATCH = 16 << 10, MOST_SHARED = 227 << 10;

struct Shape {
  int terms, tiles;  // of eight outputs each
  int turn;          // tiles modulo the blocks
  int pitch;         // of its rows in shared memory, in elements
};

__device__ __forceinline__ void sync_consumers() { cooperative::sync_first<THREADS>(); }

struct Step {
  DecoderLayer layer[MOST_LAYERS];
  const void* x;
  void* out;
  const float* cos_sin;
  const int64_t* place;
  // In the workspace, one after the other of each layer; what blocks publish to one another.
  void *qkv, *after_attention, *after_layer, *inner;
  float* context;       // of each row, head and split: sums of values by the weights 2^(score - largest)
  float* context_size;  // the largest score and the sum of weights
  int64_t cache_step[3], seq_max;
  Shape shape[4];  // of the products of a layer
  Divisor heads_of{1}, eights_of_width{1}, eights_of_ffn{1};
  int vector[VECTORS];  // size of each, in 16 bits; 0 for what is none
  int layers, rows, width, heads, kv_heads, rotary, ffn, activation;
  int splits, units;                // of attention
  float eps, inverse_width, scale;  // scale: of scores, times log2(e)
};

// From one row in shared memory to the next, in elements: eight lanes that read 16 bytes each of two rows meet no bank
// twice. With weights in 8 bits every second 16 bytes are read at once.
inline int pitch_of(int terms, bool eight_bits) {
  if (eight_bits) return terms + 8;
  return terms % 64 ? terms : terms + 32;
}

// Sixteen bytes as eight numbers.
template <typename T> __device__ __forceinline__ void widen(float (&to)[8], const uint32_t (&from)[4]) {
  const Eight<T> v = reinterpret_cast<const Eight<T>&>(from);
#pragma unroll
  for (int e = 0; e < 8; ++e) to[e] = to_float(v.value[e]);
}
template <typename T> __device__ __forceinline__ void widen(float (&to)[8], const uint4& from) {
  const uint32_t words[4] = {from.x, from.y, from.z, from.w};
  widen<T>(to, words);
}
template <typename T> __device__ __forceinline__ uint4 narrow(const float (&from)[8]) {
  Eight<T> v;
#pragma unroll
  for (int e = 0; e < 8; ++e) v.value[e] = from_float<T>(from[e]);
  return reinterpret_cast<uint4&>(v);
}
template <typename T> __device__ __forceinline__ float rounded(float v) { return to_float(from_float<T>(v)); }

// The first of a product's tiles that this block takes. turn: tiles of all products before, modulo the blocks.
__device__ __forceinline__ int first_tile(int turn) {
  const int first = int(blockIdx.x) - turn;
  return first < 0 ? first + int(gridDim.x) : first;
}
__device__ __forceinline__ int next_turn(int turn, const Shape& shape) {
  turn += shape.turn;
  return turn < int(gridDim.x) ? turn : turn - int(gridDim.x);
}

// Asks for a line of the L2 cache.
__device__ __forceinline__ void prefetch(const void* line) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
#endif
}
}  // namespace decoder
