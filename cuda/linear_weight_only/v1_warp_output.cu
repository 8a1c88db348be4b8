// A warp per element of the result, one 8-bit weight at a time.
#include "../common/reduce.cuh"
#include "sixteen.cuh"

namespace {
constexpr int THREADS = 256, WARPS = THREADS / 32;

template <typename T, int Format>
__global__ void __launch_bounds__(THREADS) weight_only_warp_output(LinearWeightOnlyArgs args) {
  const int64_t at = int64_t(blockIdx.x) * WARPS + threadIdx.x / 32;
  if (at >= args.rows * args.outputs) return;
  const int64_t r = at / args.outputs, n = at - r * args.outputs;
  const T* x = static_cast<const T*>(args.x) + r * args.x_row;
  const uint8_t* weight = args.weight + n * args.weight_row;
  float sum = 0.0f;
  for (int64_t k = threadIdx.x % 32; k < args.terms; k += 32) sum += to_float(x[k]) * one_float<Format>(weight[k]);
  sum = warp_reduce<Sum>(sum);
  if (threadIdx.x % 32 == 0) finish_one<T>(args, r, n, sum);
}
}  // namespace

FUSESCOPE_KERNEL(const LinearWeightOnlyArgs* args, void* stream) {
  const int64_t blocks = (args->rows * args->outputs + WARPS - 1) / WARPS;
  if (blocks > INT32_MAX) return "unsupported: more than 2^34 elements of the result";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    auto on = static_cast<cudaStream_t>(stream);
    if (args->format == WEIGHT_INT8) {
      weight_only_warp_output<T, WEIGHT_INT8><<<unsigned(blocks), THREADS, 0, on>>>(*args);
    } else {
      weight_only_warp_output<T, WEIGHT_E4M3><<<unsigned(blocks), THREADS, 0, on>>>(*args);
    }
    return launch_error();
  });
}
