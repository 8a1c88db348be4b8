// One elementwise pass over a product, in place, for what its epilogue did not compute: bias, activation, residual.
#pragma once
#include "../common/gelu.h"
#include "../common/row.cuh"
#include "linear.cuh"

namespace {
constexpr int FINISH_THREADS = 256, FINISH_ROWS = 4;  // rows that a thread loads before it writes

__device__ __forceinline__ float activated(float v, int activation) {
  auto exp = [](float u) { return __expf(u); };
  if (activation == LINEAR_GELU_ERF) return gelu_erf(v, exp);
  if (activation == LINEAR_GELU_TANH) return gelu_tanh(v, exp);
  return v;
}

// Thread t has column pack t mod packs and, from the last row backwards, rows t div packs, + groups, + 2 groups, ...:
// the rows that the product wrote last are still in the L2 cache.
template <typename T, bool Wide>
__global__ void __launch_bounds__(FINISH_THREADS) linear_finish(T* out, const T* bias, const T* residual,
                                                                int64_t residual_row, int activation, int64_t rows,
                                                                int64_t cols, int64_t packs, int64_t groups) {
  constexpr int width = Wide ? 16 / int(sizeof(T)) : 1;
  using Regs = row::Registers<T, 32, width, Wide>;  // for its packs
  const int64_t t = int64_t(blockIdx.x) * FINISH_THREADS + threadIdx.x;
  if (t >= packs * groups) return;
  const int64_t group = t / packs, at = (t - group * packs) * width;
  float b[width] = {};
  if (bias) Regs::read_pack(bias + at, b);
  for (int64_t last = rows - 1 - group; last >= 0; last -= FINISH_ROWS * groups) {
    float v[FINISH_ROWS][width], add[FINISH_ROWS][width] = {};
#pragma unroll
    for (int i = 0; i < FINISH_ROWS; ++i) {
      const int64_t r = last - i * groups;
      if (r >= 0) {
        Regs::read_pack(out + r * cols + at, v[i]);
        if (residual) Regs::read_pack(residual + r * residual_row + at, add[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < FINISH_ROWS; ++i) {
      const int64_t r = last - i * groups;
      if (r < 0) break;
#pragma unroll
      for (int e = 0; e < width; ++e) v[i][e] = activated(v[i][e] + b[e], activation) + add[i][e];
      Regs::write_pack(out + r * cols + at, v[i]);
    }
  }
}

template <typename T, bool Wide>
const char* launch_finish(const LinearArgs& args, const LinearRest& rest, cudaStream_t stream) {
  constexpr int width = Wide ? 16 / int(sizeof(T)) : 1;
  const int64_t packs = args.outputs / width, wanted = int64_t(multiprocessors()) * 2048 / packs;
  const int64_t groups = wanted < 1 ? 1 : (wanted > args.rows ? args.rows : wanted);
  const int64_t blocks = (packs * groups + FINISH_THREADS - 1) / FINISH_THREADS;
  if (blocks > INT32_MAX) return "unsupported: rows of more than 2^39 elements";
  linear_finish<T, Wide><<<unsigned(blocks), FINISH_THREADS, 0, stream>>>(
      static_cast<T*>(args.out), static_cast<const T*>(rest.bias), static_cast<const T*>(rest.residual),
      args.residual_row, rest.activation, args.rows, args.outputs, packs, groups);
  return launch_error();
}

inline const char* finish(const LinearArgs& args, cudaStream_t stream) {
  const LinearRest rest = linear_rest(args);
  if (!rest.any()) return nullptr;
  return dispatch(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool wide = aligned(rest.bias, 16) && row::wide_rows<T>(args.out, args.outputs, args.out, args.outputs) &&
                      (!rest.residual || row::wide_rows<T>(rest.residual, args.residual_row, args.out, args.outputs));
    return wide ? launch_finish<T, true>(args, rest, stream) : launch_finish<T, false>(args, rest, stream);
  });
}
}  // namespace
