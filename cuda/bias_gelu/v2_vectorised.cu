// A thread keeps 16 bytes of the bias in registers and walks down its columns, four rows of 16-byte loads in flight at
// a time.
#include "../common/gelu.h"
#include "../common/row.cuh"
#include "bias_gelu.cuh"

namespace {
constexpr int THREADS = 256, ROWS = 4;  // rows that a thread loads before it computes

// Thread t has column pack t mod packs and rows t div packs, + groups, + 2 groups, ...
template <typename T, bool Tanh, bool Wide>
__global__ void __launch_bounds__(THREADS) bias_gelu_vectorised(const T* x, const T* bias, T* out, int64_t rows,
                                                                int64_t x_row, int64_t cols, int64_t packs,
                                                                int64_t groups) {
  constexpr int width = Wide ? 16 / int(sizeof(T)) : 1;
  using Regs = row::Registers<T, 32, width, Wide>;  // for its packs
  const int64_t t = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (t >= packs * groups) return;
  const int64_t group = t / packs, at = (t - group * packs) * width;
  float b[width] = {};
  if (bias) Regs::read_pack(bias + at, b);
  auto exp = [](float u) { return __expf(u); };
  for (int64_t first = group; first < rows; first += ROWS * groups) {
    float v[ROWS][width];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      const int64_t r = first + i * groups;
      if (r < rows) Regs::read_pack(x + r * x_row + at, v[i]);
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      const int64_t r = first + i * groups;
      if (r >= rows) break;
#pragma unroll
      for (int e = 0; e < width; ++e) v[i][e] = Tanh ? gelu_tanh(v[i][e] + b[e], exp) : gelu_erf(v[i][e] + b[e], exp);
      Regs::write_pack(out + r * cols + at, v[i]);
    }
  }
}

template <typename T, bool Tanh, bool Wide> const char* launch(const BiasGeluArgs& args, cudaStream_t stream) {
  constexpr int width = Wide ? 16 / int(sizeof(T)) : 1;
  const int64_t packs = args.cols / width;
  // As many threads as fit on the device at once, so that each keeps its bias over many rows; fewer where the work is
  // less.
  const int64_t wanted = int64_t(multiprocessors()) * 2048 / packs;
  const int64_t groups = wanted < 1 ? 1 : (wanted > args.rows ? args.rows : wanted);
  const int64_t blocks = (packs * groups + THREADS - 1) / THREADS;
  if (blocks > INT32_MAX) return "unsupported: rows of more than 2^39 elements";
  bias_gelu_vectorised<T, Tanh, Wide><<<unsigned(blocks), THREADS, 0, stream>>>(
      static_cast<const T*>(args.x), static_cast<const T*>(args.bias), static_cast<T*>(args.out), args.rows, args.x_row,
      args.cols, packs, groups);
  return launch_error();
}
}  // namespace

FUSESCOPE_KERNEL(const BiasGeluArgs* args, void* stream) {
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool wide = aligned(args->bias, 16) && row::wide_rows<T>(args->x, args->x_row, args->out, args->cols);
    auto on = static_cast<cudaStream_t>(stream);
    if (args->tanh) return wide ? launch<T, true, true>(*args, on) : launch<T, true, false>(*args, on);
    return wide ? launch<T, false, true>(*args, on) : launch<T, false, false>(*args, on);
  });
}
