// A thread walks down its columns, 16 bytes of gate and of up for four rows in flight at a time.
//
// One division per thread; the kernel may start while the product before it ends.
#include "../common/dependent.cuh"
#include "../common/row.cuh"
#include "silu.h"
#include "swiglu.cuh"

namespace {
constexpr int THREADS = 128, ROWS = 4;  // rows that a thread loads before it computes

// Thread t has column pack t mod packs and rows t div packs, + groups, + 2 groups, ...
template <typename T, bool Wide>
__global__ void __launch_bounds__(THREADS) swiglu_vectorised(const T* gate, const T* up, T* out, SwigluArgs args,
                                                             int64_t packs, int64_t groups) {
  constexpr int width = Wide ? 16 / int(sizeof(T)) : 1;
  using Regs = row::Registers<T, 32, width, Wide>;  // for its packs
  wait_for_previous();
  let_next_start();
  const int64_t t = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (t >= packs * groups) return;
  const int64_t group = t / packs, at = (t - group * packs) * width;
  for (int64_t first = group; first < args.rows; first += ROWS * groups) {
    float g[ROWS][width], u[ROWS][width];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      const int64_t r = first + i * groups;
      if (r >= args.rows) break;
      Regs::read_pack(gate + r * args.gate_row + at, g[i]);
      Regs::read_pack(up + r * args.up_row + at, u[i]);
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      const int64_t r = first + i * groups;
      if (r >= args.rows) break;
#pragma unroll
      for (int e = 0; e < width; ++e) g[i][e] = silu(g[i][e], [](float x) { return __expf(x); }) * u[i][e];
      Regs::write_pack(out + r * args.cols + at, g[i]);
    }
  }
}

template <typename T, bool Wide> const char* launch(const SwigluArgs& args, cudaStream_t stream) {
  constexpr int width = Wide ? 16 / int(sizeof(T)) : 1;
  const int64_t packs = args.cols / width;
  // As many threads as fit on the device at once, each over many rows; fewer where the work is less.
  const int64_t wanted = int64_t(multiprocessors()) * 2048 / packs;
  const int64_t groups = wanted < 1 ? 1 : (wanted > args.rows ? args.rows : wanted);
  const int64_t blocks = (packs * groups + THREADS - 1) / THREADS;
  if (blocks > INT32_MAX) return "unsupported: rows of more than 2^38 elements";
  return launch_dependent(swiglu_vectorised<T, Wide>, unsigned(blocks), unsigned(THREADS), 0, stream, 1,
                          static_cast<const T*>(args.gate), static_cast<const T*>(args.up), static_cast<T*>(args.out),
                          args, packs, groups);
}
}  // namespace

FUSESCOPE_KERNEL(const SwigluArgs* args, void* stream) {
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool wide = row::wide_rows<T>(args->gate, args->gate_row, args->out, args->cols) &&
                      row::wide_rows<T>(args->up, args->up_row, args->out, args->cols);
    auto on = static_cast<cudaStream_t>(stream);
    return wide ? launch<T, true>(*args, on) : launch<T, false>(*args, on);
  });
}
