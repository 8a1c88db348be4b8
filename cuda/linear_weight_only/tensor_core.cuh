// Tensor cores with the weights as the left operand: sixteen outputs by up to sixteen rows, no shared-memory tiles:
// v3_tensor_core and v4_whole_lines.
//
// A product's sum does not mind the order of its columns. So a thread takes the sixteen neighbouring columns of one
// 16-byte load of a weight's row and one 32-byte load of x as its elements of four products of 16 columns: both
// operands go from memory to registers without ldmatrix, and 8-bit weights become 16-bit ones on the way. The warps of
// a block take 64 columns in turn; a thread holds four or eight 16-byte pieces of weights in flight, and requests them
// before the kernel before it has ended, where that did not write them. The warps' sums are added in one fixed order.
#pragma once
#include "../common/dependent.cuh"
#include "sixteen.cuh"

namespace {
constexpr int THREADS = 256, WARPS = THREADS / 32, COLUMNS = 64;

// Tiles: of sixteen outputs per block; Eights: of eight rows; Lines: as load_weights has it.
template <typename T, int Format, bool Wide, int Tiles, int Eights, bool Lines>
__global__ void __launch_bounds__(THREADS, 2) weight_only_tensor_core(LinearWeightOnlyArgs args, unsigned groups) {
  // Steps of the warp in flight: as many as 128 registers hold on every architecture.
  constexpr int depth = !Wide ? 1 : (Tiles == 2 || Eights == 2 ? 2 : 4), outputs = 16 * Tiles, rows = 8 * Eights;
  __shared__ float parts[WARPS][rows][outputs];
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int64_t first = int64_t(blockIdx.x / groups) * outputs, row = int64_t(blockIdx.x % groups) * rows;
  const int64_t terms = args.terms;
  const uint8_t* weight[Tiles][2];
  const T* x[Eights];
#pragma unroll
  for (int i = 0; i < Tiles; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // beyond the last output the last one again, whose sum is not written
      const int64_t n = first + 16 * i + 8 * half + g;
      weight[i][half] = args.weight + (n < args.outputs ? n : args.outputs - 1) * args.weight_row;
    }
#pragma unroll
  for (int j = 0; j < Eights; ++j) x[j] = static_cast<const T*>(args.x) + (row + 8 * j + g) * args.x_row;

  int64_t k = warp * COLUMNS + t * 16;
  uint4 ring[depth][Tiles][2];
  auto request = [&](uint4(&to)[Tiles][2], int64_t from) {
#pragma unroll
    for (int i = 0; i < Tiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) to[i][half] = load_weights<Wide, Lines>(weight[i][half], from, terms);
  };
  if (!args.settled) wait_for_previous();
#pragma unroll
  for (int d = 0; d < depth; ++d) request(ring[d], k + d * WARPS * COLUMNS);
  wait_for_previous();
  let_next_start();

  float sum[Tiles][Eights][4] = {};
  // The bound is the warp's, not the thread's: all lanes take part in each product.
  for (int64_t begin = warp * COLUMNS; begin < terms; begin += depth * WARPS * COLUMNS, k += depth * WARPS * COLUMNS) {
#pragma unroll
    for (int d = 0; d < depth; ++d) {
      const int64_t at = k + d * WARPS * COLUMNS;
      Sixteen<T> in[Eights];
#pragma unroll
      for (int j = 0; j < Eights; ++j) in[j] = load_x<T, Wide>(x[j], at, terms, row + 8 * j + g < args.rows);
#pragma unroll
      for (int s = 0; s < 4; ++s) {
#pragma unroll
        for (int i = 0; i < Tiles; ++i) {
          uint32_t upper[2], lower[2];
          four_pairs<Format, T>(word_of(ring[d][i][0], s), upper);
          four_pairs<Format, T>(word_of(ring[d][i][1], s), lower);
          const uint32_t a[4] = {upper[0], lower[0], upper[1], lower[1]};
#pragma unroll
          for (int j = 0; j < Eights; ++j) {
            auto words = reinterpret_cast<const uint32_t*>(&in[j]);
            const uint32_t b[2] = {words[2 * s], words[2 * s + 1]};
            tensor_core::mma_m16n8k16<T>(sum[i][j], a, b);
          }
        }
      }
      request(ring[d], at + depth * WARPS * COLUMNS);
    }
  }
#pragma unroll
  for (int i = 0; i < Tiles; ++i)
#pragma unroll
    for (int j = 0; j < Eights; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) parts[warp][8 * j + 2 * t + e % 2][16 * i + g + 8 * (e / 2)] = sum[i][j][e];
  __syncthreads();
  for (int at = threadIdx.x; at < rows * outputs; at += THREADS) {
    const int64_t r = row + at / outputs, n = first + at % outputs;
    if (r >= args.rows || n >= args.outputs) continue;
    float whole = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) whole += parts[w][at / outputs][at % outputs];
    finish_one<T>(args, r, n, whole);
  }
}

template <typename T, int Format, bool Wide, int Tiles, int Eights, bool Lines>
const char* launch(const LinearWeightOnlyArgs& args, cudaStream_t stream) {
  constexpr int outputs = 16 * Tiles, rows = 8 * Eights;
  const int64_t groups = (args.rows + rows - 1) / rows, blocks = (args.outputs + outputs - 1) / outputs * groups;
  if (blocks > INT32_MAX) return "unsupported: more than 2^31 blocks of sixteen outputs and sixteen rows";
  return launch_dependent(weight_only_tensor_core<T, Format, Wide, Tiles, Eights, Lines>, unsigned(blocks),
                          unsigned(THREADS), 0, stream, 1, args, unsigned(groups));
}

template <bool Lines> const char* tensor_core_product(const LinearWeightOnlyArgs& args, void* stream) {
  return dispatch_16bit(args.dtype, "unsupported: float32 (use v2_dot)", [&](auto zero) {
    using T = decltype(zero);
    auto on = static_cast<cudaStream_t>(stream);
    return with_format<T>(args, [&](auto format, auto wide) {
      constexpr int f = decltype(format)::value;
      if constexpr (!decltype(wide)::value) return launch<T, f, false, 1, 2, Lines>(args, on);
      // Two tiles per block share x, where that still leaves every multiprocessor a block.
      const bool two = args.outputs >= int64_t(multiprocessors()) * 32;
      if (args.rows <= 8)
        return two ? launch<T, f, true, 2, 1, Lines>(args, on) : launch<T, f, true, 1, 1, Lines>(args, on);
      return two ? launch<T, f, true, 2, 2, Lines>(args, on) : launch<T, f, true, 1, 2, Lines>(args, on);
    });
  });
}
}  // namespace
