// One element per thread; its row by a division.
#include "../common/launch.cuh"
#include "../common/silu.h"
#include "swiglu.cuh"

namespace {
constexpr int THREADS = 256;

template <typename T>
__global__ void __launch_bounds__(THREADS) swiglu_one_element(const T* gate, const T* up, T* out, SwigluArgs args) {
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= args.rows * args.cols) return;
  const int64_t r = i / args.cols, j = i - r * args.cols;
  const float g = to_float(gate[r * args.gate_row + j]), u = to_float(up[r * args.up_row + j]);
  out[i] = from_float<T>(silu(g, [](float x) { return __expf(x); }) * u);
}
}  // namespace

FUSESCOPE_KERNEL(const SwigluArgs* args, void* stream) {
  const int64_t total = args->rows * args->cols, blocks = (total + THREADS - 1) / THREADS;
  if (blocks > INT32_MAX) return "unsupported: more than 2^39 elements";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    swiglu_one_element<T><<<unsigned(blocks), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(args->gate), static_cast<const T*>(args->up), static_cast<T*>(args->out), *args);
    return launch_error();
  });
}
