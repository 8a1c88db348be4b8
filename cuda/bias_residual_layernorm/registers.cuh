// LayerNorm of a sum with the row in registers: what v2_registers and v3_few_rows share; they differ in the threads of
// a row.
#pragma once
#include "../common/dependent.cuh"
#include "../common/row_norm.cuh"
#include "bias_residual_layernorm.cuh"

namespace {
template <typename T, int Threads, int Each, bool Wide>
__global__ void __launch_bounds__(Threads* row::ROWS<Threads>) bias_residual_layernorm_registers(
    const T* x, const T* bias, const T* residual, const T* weight, const T* shift, T* out, int64_t rows, int64_t x_row,
    int64_t residual_row, int cols, float eps) {
  wait_for_previous();
  let_next_start();
  const int64_t r = int64_t(blockIdx.x) * row::ROWS<Threads> + threadIdx.x / Threads;
  if (r >= rows) return;  // whole warps leave, and only where a row is a warp's
  x += r * x_row;
  if (residual) residual += r * residual_row;
  const float first = to_float(x[0]) + (bias ? to_float(bias[0]) : 0.0f) + (residual ? to_float(residual[0]) : 0.0f);
  using Regs = row::Registers<T, Threads, Each, Wide>;
  Regs regs(threadIdx.x % Threads, cols);
  regs.load(x);
  float sum = 0.0f;
  regs.each_pack([&](int at, float* v) {
    float b[Regs::Width], add[Regs::Width];
    if (bias) Regs::read_pack(bias + at, b);
    if (residual) Regs::read_pack(residual + at, add);
#pragma unroll
    for (int e = 0; e < Regs::Width; ++e) {
      if (bias) v[e] += b[e];
      if (residual) v[e] += add[e];
      v[e] -= first;
      sum += v[e];
    }
  });
  row::normalise<false>(regs, sum, weight, shift, out, r, eps);
}

// Rows too long for a block's registers: three passes, as in v1_block_row, with more threads and 16-byte vectors.
constexpr int STREAM = 1024;
template <typename T, bool Wide>
__global__ void __launch_bounds__(STREAM) bias_residual_layernorm_streamed(const T* x, const T* bias, const T* residual,
                                                                           const T* weight, const T* shift, T* out,
                                                                           int64_t x_row, int64_t residual_row,
                                                                           int64_t cols, float eps) {
  constexpr int width = Wide ? 16 / int(sizeof(T)) : 1;
  using Regs = row::Registers<T, 32, width, Wide>;  // for its packs
  x += blockIdx.x * x_row;
  if (residual) residual += blockIdx.x * residual_row;
  out += blockIdx.x * cols;
  const float first = to_float(x[0]) + (bias ? to_float(bias[0]) : 0.0f) + (residual ? to_float(residual[0]) : 0.0f);
  auto each_pack = [&](auto f) {
    for (int64_t j = int64_t(threadIdx.x) * width; j < cols; j += STREAM * width) {
      float v[width], more[width];
      Regs::read_pack(x + j, v);
      if (bias) {
        Regs::read_pack(bias + j, more);
#pragma unroll
        for (int e = 0; e < width; ++e) v[e] += more[e];
      }
      if (residual) {
        Regs::read_pack(residual + j, more);
#pragma unroll
        for (int e = 0; e < width; ++e) v[e] += more[e];
      }
#pragma unroll
      for (int e = 0; e < width; ++e) v[e] -= first;
      f(j, v);
    }
  };
  float sum = 0.0f, squares = 0.0f;
  each_pack([&](int64_t, const float* v) {
#pragma unroll
    for (int e = 0; e < width; ++e) sum += v[e];
  });
  const float mean = group_reduce<Sum, STREAM>(sum) / float(cols);
  each_pack([&](int64_t, const float* v) {
#pragma unroll
    for (int e = 0; e < width; ++e) squares += (v[e] - mean) * (v[e] - mean);
  });
  const float scale = rsqrtf(group_reduce<Sum, STREAM>(squares) / float(cols) + eps);
  each_pack([&](int64_t j, float* v) {
    float w[width], s[width];
    Regs::read_pack(weight + j, w);
    Regs::read_pack(shift + j, s);
#pragma unroll
    for (int e = 0; e < width; ++e) v[e] = (v[e] - mean) * scale * w[e] + s[e];
    Regs::write_pack(out + j, v);
  });
}

// by_length(cols, body) calls body(threads, each) with integral constants that hold a row of cols elements.
template <typename T, bool Wide, typename ByLength>
const char* launch_wide(const BiasResidualLayernormArgs& args, cudaStream_t stream, ByLength by_length) {
  auto x = static_cast<const T*>(args.x), bias = static_cast<const T*>(args.bias);
  auto residual = static_cast<const T*>(args.residual), weight = static_cast<const T*>(args.weight);
  auto shift = static_cast<const T*>(args.shift);
  auto out = static_cast<T*>(args.out);
  if (args.cols > row::MOST_IN_REGISTERS) {
    if (args.rows > row::MOST_BLOCKS) return "unsupported: more than 2^31 rows";
    bias_residual_layernorm_streamed<T, Wide><<<unsigned(args.rows), STREAM, 0, stream>>>(
        x, bias, residual, weight, shift, out, args.x_row, args.residual_row, args.cols, args.eps);
    return launch_error();
  }
  return by_length(args.cols, [&](auto threads, auto each) -> const char* {
    constexpr int rows = row::ROWS<threads.value>;
    const int64_t blocks = (args.rows + rows - 1) / rows;
    if (blocks > row::MOST_BLOCKS) return "unsupported: more than 2^31 rows";
    return launch_dependent(bias_residual_layernorm_registers<T, threads.value, each.value, Wide>, unsigned(blocks),
                            threads.value * rows, 0, stream, 1, x, bias, residual, weight, shift, out, args.rows,
                            args.x_row, args.residual_row, int(args.cols), args.eps);
  });
}

template <typename ByLength>
const char* launch(const BiasResidualLayernormArgs& args, void* stream, ByLength by_length) {
  return dispatch(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool vectors = aligned(args.bias, 16) && aligned(args.weight, 16) && aligned(args.shift, 16);  // nullptr is
    const bool wide = vectors && row::wide_rows<T>(args.x, args.x_row, args.out, args.cols) &&
                      row::wide_rows<T>(args.residual, args.residual_row, args.out, args.cols);
    auto on = static_cast<cudaStream_t>(stream);
    return wide ? launch_wide<T, true>(args, on, by_length) : launch_wide<T, false>(args, on, by_length);
  });
}
}  // namespace
