// The row in registers, read once and written once in 16-byte vectors; a warp or a block per row by its length.
#include "../common/row_norm.cuh"
#include "layernorm.cuh"

namespace {
template <typename T, int Threads, int Each, bool Wide>
__global__ void __launch_bounds__(Threads* row::ROWS<Threads>) layernorm_registers(const T* x, const T* weight,
                                                                                   const T* bias, T* out, int64_t rows,
                                                                                   int64_t x_row, int cols, float eps) {
  const int64_t r = int64_t(blockIdx.x) * row::ROWS<Threads> + threadIdx.x / Threads;
  if (r >= rows) return;  // whole warps leave, and only where a row is a warp's
  x += r * x_row;
  const float first = to_float(x[0]);
  using Regs = row::Registers<T, Threads, Each, Wide>;
  Regs regs(threadIdx.x % Threads, cols);
  regs.load(x);
  float sum = 0.0f;
  regs.each([&](float& v) {
    v -= first;
    sum += v;
  });
  row::normalise<true>(regs, sum, weight, bias, out, r, eps);
}

// Rows too long for a block's registers: three passes, as in v1_block_row, with more threads and 16-byte vectors.
constexpr int STREAM = 1024;
template <typename T, bool Wide>
__global__ void __launch_bounds__(STREAM) layernorm_streamed(const T* x, const T* weight, const T* bias, T* out,
                                                             int64_t x_row, int64_t cols, float eps) {
  using Pack = row::Pack<T>;
  constexpr int width = Wide ? 16 / sizeof(T) : 1;
  x += blockIdx.x * x_row;
  out += blockIdx.x * cols;
  const float first = to_float(x[0]);
  auto each = [&](auto f) {
    for (int64_t j = int64_t(threadIdx.x) * width; j < cols; j += STREAM * width) {
      if constexpr (Wide) {
        const Pack pack = *reinterpret_cast<const Pack*>(x + j);
#pragma unroll
        for (int e = 0; e < width; ++e) f(j + e, to_float(pack.value[e]) - first);
      } else {
        f(j, to_float(x[j]) - first);
      }
    }
  };
  float sum = 0.0f, squares = 0.0f;
  each([&](int64_t, float v) { sum += v; });
  const float mean = group_reduce<Sum, STREAM>(sum) / float(cols);
  each([&](int64_t, float v) { squares += (v - mean) * (v - mean); });
  const float scale = rsqrtf(group_reduce<Sum, STREAM>(squares) / float(cols) + eps);
  each([&](int64_t j, float v) {
    out[j] =
        from_float<T>((v - mean) * scale * (weight ? to_float(weight[j]) : 1.0f) + (bias ? to_float(bias[j]) : 0.0f));
  });
}

template <typename T, bool Wide> const char* launch(const LayernormArgs& args, cudaStream_t stream) {
  auto x = static_cast<const T*>(args.x), weight = static_cast<const T*>(args.weight),
       bias = static_cast<const T*>(args.bias);
  auto out = static_cast<T*>(args.out);
  if (args.cols > row::MOST_IN_REGISTERS) {
    if (args.rows > row::MOST_BLOCKS) return "unsupported: more than 2^31 rows";
    layernorm_streamed<T, Wide>
        <<<unsigned(args.rows), STREAM, 0, stream>>>(x, weight, bias, out, args.x_row, args.cols, args.eps);
    return launch_error();
  }
  return row::by_length(args.cols, [&](auto threads, auto each) -> const char* {
    constexpr int rows = row::ROWS<threads.value>;
    const int64_t blocks = (args.rows + rows - 1) / rows;
    if (blocks > row::MOST_BLOCKS) return "unsupported: more than 2^31 rows";
    layernorm_registers<T, threads.value, each.value, Wide><<<unsigned(blocks), threads.value * rows, 0, stream>>>(
        x, weight, bias, out, args.rows, args.x_row, int(args.cols), args.eps);
    return launch_error();
  });
}
}  // namespace

FUSESCOPE_KERNEL(const LayernormArgs* args, void* stream) {
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool parameters = aligned(args->weight, 16) && aligned(args->bias, 16);  // nullptr is
    const bool wide = parameters && row::wide_rows<T>(args->x, args->x_row, args->out, args->cols);
    auto on = static_cast<cudaStream_t>(stream);
    return wide ? launch<T, true>(*args, on) : launch<T, false>(*args, on);
  });
}
