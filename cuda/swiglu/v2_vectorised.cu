// A thread for every 16 bytes of the result, so few registers that the device is full of threads with two loads each.
//
// What precedes the loads is a product and a shift for the row. The kernel may start while the product before it ends.
#include "../common/dependent.cuh"
#include "../common/divisor.cuh"
#include "../common/exp2.cuh"
#include "../common/raw.cuh"
#include "../common/reciprocal.cuh"
#include "../common/row.cuh"
#include "../common/silu.h"
#include "swiglu.cuh"

namespace {
constexpr int THREADS = 128;

// Thread t has row t div packs and of it pack t mod packs. Fewer than 2^31 packs.
template <typename T, bool Wide>
__global__ void __launch_bounds__(THREADS) swiglu_vectorised(SwigluArgs args, Divisor packs) {
  constexpr int width = Wide ? 16 / int(sizeof(T)) : 1;
  const uint32_t t = blockIdx.x * THREADS + threadIdx.x, r = packs.quotient(t);
  const int64_t at = int64_t(t - r * packs.value) * width;
  wait_for_previous();
  let_next_start();
  if (r >= uint32_t(args.rows)) return;
  row::Raw<T, width> g, u;
  g.read(static_cast<const T*>(args.gate) + r * args.gate_row + at);
  u.read(static_cast<const T*>(args.up) + r * args.up_row + at);
  row::Rounded<T, width> out;
#pragma unroll
  for (int e = 0; e < width; ++e) {
    const float gated = silu(g[e], [](float x) { return exp2_approx(x * kLog2e); }, reciprocal_approx);
    out.set(e, gated * u[e]);
  }
  out.write(static_cast<T*>(args.out) + int64_t(t) * width);
}

template <typename T, bool Wide> const char* launch(SwigluArgs args, cudaStream_t stream) {
  const int64_t packs = Wide ? args.cols / (16 / int64_t(sizeof(T))) : args.cols, most = INT32_MAX - THREADS;
  if (packs > most) return "unsupported: rows of 2^31 vectors (of 16 bytes, or of one element where not aligned)";
  const Divisor divisor{int32_t(packs)};
  const char* error = nullptr;
  for (int64_t left = args.rows; left > 0 && !error; left -= args.rows) {  // one launch but for the largest tensors
    args.rows = left < most / packs ? left : most / packs;
    const unsigned blocks = unsigned((packs * args.rows + THREADS - 1) / THREADS);
    error = launch_dependent(swiglu_vectorised<T, Wide>, blocks, unsigned(THREADS), 0, stream, 1, args, divisor);
    args.gate = static_cast<const T*>(args.gate) + args.rows * args.gate_row;
    args.up = static_cast<const T*>(args.up) + args.rows * args.up_row;
    args.out = static_cast<T*>(args.out) + args.rows * args.cols;
  }
  return error;
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
