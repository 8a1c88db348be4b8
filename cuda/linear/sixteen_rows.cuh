// A product of up to sixteen rows, the weight as left operand of mma.sync, from 16-byte loads straight to registers:
// v5_sixteen_rows and v6_whole_lines.
//
// A product's sum does not mind the order of its columns: a thread takes the eight neighbouring columns of one 16-byte
// load of a weight's row, and of one of x, as its elements of two products of 16 columns, without shared memory or
// ldmatrix. The warps of a block take 32 columns in turn for the same sixteen or 32 outputs. A thread holds four or
// eight 16-byte pieces of the weight in flight and requests them before the previous kernel has ended (settled). The
// warps' sums are added in one fixed order. The same as cuda/linear_weight_only/tensor_core.cuh for 16-bit weights.
#pragma once
#include "../common/dependent.cuh"
#include "../common/exp2.cuh"
#include "../common/gelu.h"
#include "../common/load_once.cuh"
#include "../common/mma.cuh"
#include "../common/reciprocal.cuh"
#include "../common/silu.h"
#include "own_product.cuh"

namespace {
constexpr int THREADS = 256, WARPS = THREADS / 32, COLUMNS = 32;

// Eight weights, zeros beyond `terms`.
template <bool Lines> __device__ __forceinline__ uint4 load_inside(const void* from, bool inside) {
  uint4 v = {0, 0, 0, 0};
  if (!inside) return v;
  load_once<Lines>(v, from);
  return v;
}

// Tiles: of sixteen outputs per block; Eights: of eight rows; Lines: as load_once has it. SwiGLU: half a block's
// outputs are of the gate, the other half the same ones of up; upper and lower half of a tile, or the two tiles.
template <typename T, int Activation, int Tiles, int Eights, bool Lines>
__global__ void __launch_bounds__(THREADS, 2) linear_sixteen_rows(const T* x, int64_t x_row, const T* weight,
                                                                  int64_t weight_row, const T* bias, const T* residual,
                                                                  int64_t residual_row, T* out, int rows, int outputs,
                                                                  int terms, bool settled) {
  constexpr int depth = Tiles == 2 || Eights == 2 ? 2 : 4, block_outputs = 16 * Tiles, block_rows = 8 * Eights;
  __shared__ float parts[WARPS][block_rows][block_outputs];
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  constexpr bool gated = Activation == LINEAR_SWIGLU;
  constexpr int width = gated ? block_outputs / 2 : block_outputs;  // results of a block
  const int results = gated ? outputs / 2 : outputs, first = blockIdx.x * width;
  const T* from[Tiles][2];
#pragma unroll
  for (int i = 0; i < Tiles; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // beyond the last output the last one again, whose sum is not written
      int n = first + 16 * i + 8 * half + g;
      if (gated) n = first + (Tiles == 2 ? 8 * half : 0) + g;
      n = n < results ? n : results - 1;
      if (gated && (Tiles == 2 ? i : half)) n += results;
      from[i][half] = weight + n * weight_row;
    }
  int k = warp * COLUMNS + t * 8;
  uint4 ring[depth][Tiles][2];
  auto request = [&](uint4(&to)[Tiles][2], int at) {
#pragma unroll
    for (int i = 0; i < Tiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) to[i][half] = load_inside<Lines>(from[i][half] + at, at < terms);
  };
  if (!settled) wait_for_previous();
#pragma unroll
  for (int d = 0; d < depth; ++d) request(ring[d], k + d * WARPS * COLUMNS);
  wait_for_previous();
  let_next_start();

  float sum[Tiles][Eights][4] = {};
  // The bound is the warp's, not the thread's: all lanes take part in each product.
  for (int begin = warp * COLUMNS; begin < terms; begin += depth * WARPS * COLUMNS, k += depth * WARPS * COLUMNS) {
#pragma unroll
    for (int d = 0; d < depth; ++d) {
      const int at = k + d * WARPS * COLUMNS;
      uint4 in[Eights];
#pragma unroll
      for (int j = 0; j < Eights; ++j) {
        in[j] = {0, 0, 0, 0};
        const int r = 8 * j + g;
        if (r < rows && at < terms) in[j] = *reinterpret_cast<const uint4*>(x + r * x_row + at);
      }
#pragma unroll
      for (int i = 0; i < Tiles; ++i) {
        const uint4 upper = ring[d][i][0], lower = ring[d][i][1];
        const uint32_t a[2][4] = {{upper.x, lower.x, upper.y, lower.y}, {upper.z, lower.z, upper.w, lower.w}};
#pragma unroll
        for (int j = 0; j < Eights; ++j) {
          const uint32_t b[2][2] = {{in[j].x, in[j].y}, {in[j].z, in[j].w}};
          tensor_core::mma_m16n8k16<T>(sum[i][j], a[0], b[0]);
          tensor_core::mma_m16n8k16<T>(sum[i][j], a[1], b[1]);
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
  for (int at = threadIdx.x; at < block_rows * width; at += THREADS) {
    const int r = at / width, n = first + at % width;
    if (r >= rows || n >= results) continue;
    auto product = [&](int column, int output) {
      float whole = 0.0f;
#pragma unroll
      for (int w = 0; w < WARPS; ++w) whole += parts[w][r][column];
      return whole + (bias ? to_float(bias[output]) : 0.0f);
    };
    float whole = product(at % width, n);
    if constexpr (Activation == LINEAR_GELU_ERF) whole = gelu_erf(whole, [](float u) { return __expf(u); });
    if constexpr (Activation == LINEAR_GELU_TANH) whole = gelu_tanh(whole, [](float u) { return __expf(u); });
    if constexpr (gated) {  // the bits of a product and then swiglu: gate and up are rounded
      auto rounded = [](float u) { return to_float(from_float<T>(u)); };
      auto power = [](float u) { return exp2_approx(u * kLog2e); };
      whole = silu(rounded(whole), power, reciprocal_approx) * rounded(product(width + at % width, results + n));
    }
    if (residual) whole += to_float(residual[r * residual_row + n]);
    out[int64_t(r) * results + n] = from_float<T>(whole);
  }
}

template <typename T, int Activation, int Tiles, int Eights, bool Lines>
const char* launch(const LinearArgs& args, cudaStream_t stream) {
  const int64_t blocks = (args.outputs + 16 * Tiles - 1) / (16 * Tiles);
  return launch_dependent(linear_sixteen_rows<T, Activation, Tiles, Eights, Lines>, unsigned(blocks), unsigned(THREADS),
                          0, stream, 1, static_cast<const T*>(args.x), args.x_row, static_cast<const T*>(args.weight),
                          args.weight_row, static_cast<const T*>(args.bias), static_cast<const T*>(args.residual),
                          args.residual_row, static_cast<T*>(args.out), int(args.rows), int(args.outputs),
                          int(args.terms), args.settled != 0);
}

// Gated: whether SwiGLU is computed as well.
template <bool Lines, bool Gated> const char* sixteen_rows(const LinearArgs& args, void* stream) {
  if (args.rows > 16) return "unsupported: more than 16 rows (use v4_few_rows)";
  if (args.terms > INT32_MAX / 2) return "unsupported: more than 2^30 terms";
  return dispatch_product<Gated>(args, [&](auto zero, auto activation) {
    using T = decltype(zero);
    constexpr int how = decltype(activation)::value;
    auto on = static_cast<cudaStream_t>(stream);
    // Two tiles per block share x, where that still leaves every multiprocessor a block.
    const bool two = args.outputs >= int64_t(multiprocessors()) * 32;
    if (args.rows <= 8) return two ? launch<T, how, 2, 1, Lines>(args, on) : launch<T, how, 1, 1, Lines>(args, on);
    return two ? launch<T, how, 2, 2, Lines>(args, on) : launch<T, how, 1, 2, Lines>(args, on);
  });
}
}  // namespace
