// One element per thread; its column by a division.
#include "../common/gelu.h"
#include "../common/launch.cuh"
#include "bias_gelu.cuh"

#include <type_traits>

namespace {
constexpr int THREADS = 256;

template <typename T, bool Tanh>
__global__ void __launch_bounds__(THREADS) bias_gelu_one_element(const T* x, const T* bias, T* out, int64_t x_row,
                                                                 int64_t cols, int64_t total) {
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= total) return;
  const int64_t r = i / cols, j = i - r * cols;
  const float v = to_float(x[r * x_row + j]) + (bias ? to_float(bias[j]) : 0.0f);
  auto exp = [](float u) { return __expf(u); };
  out[i] = from_float<T>(Tanh ? gelu_tanh(v, exp) : gelu_erf(v, exp));
}
}  // namespace

FUSESCOPE_KERNEL(const BiasGeluArgs* args, void* stream) {
  const int64_t total = args->rows * args->cols, blocks = (total + THREADS - 1) / THREADS;
  if (blocks > INT32_MAX) return "unsupported: more than 2^39 elements";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    auto x = static_cast<const T*>(args->x), bias = static_cast<const T*>(args->bias);
    auto out = static_cast<T*>(args->out);
    auto start = [&](auto tanh) {
      bias_gelu_one_element<T, decltype(tanh)::value>
          <<<unsigned(blocks), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(x, bias, out, args->x_row, args->cols,
                                                                                total);
      return launch_error();
    };
    return args->tanh ? start(std::true_type{}) : start(std::false_type{});
  });
}
