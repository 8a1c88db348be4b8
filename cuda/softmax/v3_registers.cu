// The row in registers, read once and written once in 16-byte vectors; a warp or a block per row by its length, online
// if too long.
#include "../common/reduce.cuh"
#include "../common/row.cuh"
#include "online.cuh"
#include "softmax.cuh"

namespace {
template <typename T, int Threads, int Each, bool Wide>
__global__ void __launch_bounds__(Threads* row::ROWS<Threads>) softmax_registers(const T* x, T* out, int64_t rows,
                                                                                 int64_t x_row, int cols) {
  const int64_t r = int64_t(blockIdx.x) * row::ROWS<Threads> + threadIdx.x / Threads;
  if (r >= rows) return;  // whole warps leave, and only where a row is a warp's
  row::Registers<T, Threads, Each, Wide> regs(threadIdx.x % Threads, cols);
  regs.load(x + r * x_row);
  float highest = -INFINITY, sum = 0.0f;
  regs.each([&](float& v) { highest = fmaxf(highest, v); });
  highest = group_reduce<Max, Threads>(highest);
  regs.each([&](float& v) {
    v = __expf(v - highest);
    sum += v;
  });
  const float scale = 1.0f / group_reduce<Sum, Threads>(sum);
  regs.each([&](float& v) { v *= scale; });
  regs.store(out + r * cols);
}

// Rows too long for a block's registers: maximum and sum online, then the result, so the row is read twice.
constexpr int STREAM = 1024;
template <typename T, bool Wide>
__global__ void __launch_bounds__(STREAM) softmax_streamed(const T* x, T* out, int64_t x_row, int64_t cols) {
  using Pack = row::Pack<T>;
  constexpr int width = Wide ? 16 / sizeof(T) : 1;
  x += blockIdx.x * x_row;
  out += blockIdx.x * cols;
  Online online;
  for (int64_t j = int64_t(threadIdx.x) * width; j < cols; j += STREAM * width) {
    if constexpr (Wide) {
      const Pack pack = *reinterpret_cast<const Pack*>(x + j);
#pragma unroll
      for (int e = 0; e < width; ++e) online.add(to_float(pack.value[e]));
    } else {
      online.add(to_float(x[j]));
    }
  }
  online.merge<STREAM>();
  for (int64_t j = int64_t(threadIdx.x) * width; j < cols; j += STREAM * width) {
    if constexpr (Wide) {
      Pack pack = *reinterpret_cast<const Pack*>(x + j);
#pragma unroll
      for (int e = 0; e < width; ++e) pack.value[e] = from_float<T>(online.finish(to_float(pack.value[e])));
      *reinterpret_cast<Pack*>(out + j) = pack;
    } else {
      out[j] = from_float<T>(online.finish(to_float(x[j])));
    }
  }
}

template <typename T, bool Wide> const char* launch(const SoftmaxArgs& args, cudaStream_t stream) {
  auto x = static_cast<const T*>(args.x);
  auto out = static_cast<T*>(args.out);
  if (args.cols > row::MOST_IN_REGISTERS) {
    if (args.rows > row::MOST_BLOCKS) return "unsupported: more than 2^31 rows";
    softmax_streamed<T, Wide><<<unsigned(args.rows), STREAM, 0, stream>>>(x, out, args.x_row, args.cols);
    return launch_error();
  }
  return row::by_length(args.cols, [&](auto threads, auto each) -> const char* {
    constexpr int rows = row::ROWS<threads.value>;
    const int64_t blocks = (args.rows + rows - 1) / rows;
    if (blocks > row::MOST_BLOCKS) return "unsupported: more than 2^31 rows";
    softmax_registers<T, threads.value, each.value, Wide>
        <<<unsigned(blocks), threads.value * rows, 0, stream>>>(x, out, args.rows, args.x_row, int(args.cols));
    return launch_error();
  });
}
}  // namespace

FUSESCOPE_KERNEL(const SoftmaxArgs* args, void* stream) {
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool wide = row::wide_rows<T>(args->x, args->x_row, args->out, args->cols);
    auto on = static_cast<cudaStream_t>(stream);
    return wide ? launch<T, true>(*args, on) : launch<T, false>(*args, on);
  });
}
