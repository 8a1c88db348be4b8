// The sum in registers: x and residual read once, as 16-byte vectors; a warp or a block per row, and more threads for a
// row where rows are few.
//
// Decoding has 1 to 16 rows: there each thread gets one or two vectors, so that a row is in flight at once, and the
// kernel may start while the product before it ends.
#include "../common/dependent.cuh"
#include "../common/reduce.cuh"
#include "../common/row.cuh"
#include "rmsnorm_residual.cuh"

namespace {
template <typename T, int Threads, int Each>
__global__ void __launch_bounds__(Threads* row::ROWS<Threads>) rmsnorm_residual_registers(RmsnormResidualArgs args) {
  wait_for_previous();
  let_next_start();
  const int64_t r = int64_t(blockIdx.x) * row::ROWS<Threads> + threadIdx.x / Threads;
  if (r >= args.rows) return;  // whole warps leave, and only where a row is a warp's
  const int cols = int(args.cols);
  auto weight = static_cast<const T*>(args.weight);
  using Regs = row::Registers<T, Threads, Each, true>;
  Regs regs(threadIdx.x % Threads, cols);
  regs.load(static_cast<const T*>(args.x.data) + row_begin(args.x, r, args.inner));
  float squares = 0.0f;
  if (args.residual.data) {
    const T* residual = static_cast<const T*>(args.residual.data) + row_begin(args.residual, r, args.inner);
    T* sum = static_cast<T*>(args.sum) + r * cols;
    regs.each_pack([&](int at, float* v) {
      float add[Regs::Width];
      Regs::read_pack(residual + at, add);
#pragma unroll
      for (int e = 0; e < Regs::Width; ++e) v[e] += add[e];
      Regs::write_pack(sum + at, v);
    });
  }
  regs.each([&](float v) { squares += v * v; });
  const float scale = rsqrtf(group_reduce<Sum, Threads>(squares) / float(cols) + args.eps);
  T* out = static_cast<T*>(args.out) + r * cols;
  regs.each_pack([&](int at, float* v) {
    float w[Regs::Width];
    Regs::read_pack(weight + at, w);
#pragma unroll
    for (int e = 0; e < Regs::Width; ++e) v[e] *= scale * w[e];
    Regs::write_pack(out + at, v);
  });
}

// Rows too long for a block's registers, and those that are no 16-byte vectors, which are rare: two passes, as in
// v1_block_row, with more threads.
constexpr int STREAM = 512;
template <typename T, bool Wide>
__global__ void __launch_bounds__(STREAM) rmsnorm_residual_streamed(RmsnormResidualArgs args) {
  constexpr int width = Wide ? 16 / int(sizeof(T)) : 1;
  using Regs = row::Registers<T, 32, width, Wide>;  // for its packs
  const int64_t r = blockIdx.x, cols = args.cols;
  const T* x = static_cast<const T*>(args.x.data) + row_begin(args.x, r, args.inner);
  const T* residual = nullptr;
  if (args.residual.data)
    residual = static_cast<const T*>(args.residual.data) + row_begin(args.residual, r, args.inner);
  auto each_pack = [&](auto f) {
#pragma unroll 1  // unrolled, it spills
    for (int64_t j = int64_t(threadIdx.x) * width; j < cols; j += STREAM * width) {
      float v[width], add[width];
      Regs::read_pack(x + j, v);
      if (residual) {
        Regs::read_pack(residual + j, add);
#pragma unroll
        for (int e = 0; e < width; ++e) v[e] += add[e];
      }
      f(j, v);
    }
  };
  T* sum = static_cast<T*>(args.sum) + r * cols;
  float squares = 0.0f;
  each_pack([&](int64_t j, const float* v) {
    if (residual) Regs::write_pack(sum + j, v);
#pragma unroll
    for (int e = 0; e < width; ++e) squares += v[e] * v[e];
  });
  const float scale = rsqrtf(group_reduce<Sum, STREAM>(squares) / float(cols) + args.eps);
  auto weight = static_cast<const T*>(args.weight);
  T* out = static_cast<T*>(args.out) + r * cols;
  each_pack([&](int64_t j, float* v) {
    float w[width];
    Regs::read_pack(weight + j, w);
#pragma unroll
    for (int e = 0; e < width; ++e) v[e] *= scale * w[e];
    Regs::write_pack(out + j, v);
  });
}

// Elements of the longest row in registers; 32 in each of 1024 threads spill on sm_75 and sm_80.
constexpr int64_t LONGEST = 512 * 32;

// Threads and elements per thread for rows of `cols`, at most LONGEST; few: rows too few to occupy the device by a warp
// or 256 threads each.
template <typename Body> const char* by_length(int64_t cols, bool few, Body body) {
  using std::integral_constant;
  if (cols <= 256) return body(integral_constant<int, 32>{}, integral_constant<int, 8>{});
  if (few && cols <= 1024) return body(integral_constant<int, 128>{}, integral_constant<int, 8>{});
  if (cols <= 1024) return body(integral_constant<int, 32>{}, integral_constant<int, 32>{});
  if (few && cols <= 4096) return body(integral_constant<int, 512>{}, integral_constant<int, 8>{});
  if (cols <= 4096) return body(integral_constant<int, 256>{}, integral_constant<int, 16>{});
  if (cols <= 8192) return body(integral_constant<int, 1024>{}, integral_constant<int, 8>{});
  return body(integral_constant<int, 512>{}, integral_constant<int, 32>{});
}

template <typename T, bool Wide> const char* launch_streamed(const RmsnormResidualArgs& args, cudaStream_t stream) {
  if (args.rows > row::MOST_BLOCKS) return "unsupported: more than 2^31 rows";
  rmsnorm_residual_streamed<T, Wide><<<unsigned(args.rows), STREAM, 0, stream>>>(args);
  return launch_error();
}

template <typename T> const char* launch(const RmsnormResidualArgs& args, cudaStream_t stream) {
  const bool few = args.rows < 4 * int64_t(multiprocessors());
  return by_length(args.cols, few, [&](auto threads, auto each) -> const char* {
    constexpr int rows = row::ROWS<threads.value>;
    const int64_t blocks = (args.rows + rows - 1) / rows;
    if (blocks > row::MOST_BLOCKS) return "unsupported: more than 2^31 rows";
    return launch_dependent(rmsnorm_residual_registers<T, threads.value, each.value>, unsigned(blocks),
                            threads.value * rows, 0, stream, 1, args);
  });
}

template <typename T> bool wide_operand(const RmsnormRows& rows, const void* out, int64_t cols) {
  return row::wide_rows<T>(rows.data, rows.outer_step, out, cols) &&
         row::wide_rows<T>(rows.data, rows.inner_step, out, cols);
}
}  // namespace

FUSESCOPE_KERNEL(const RmsnormResidualArgs* args, void* stream) {
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool wide = aligned(args->weight, 16) && wide_operand<T>(args->x, args->out, args->cols) &&
                      wide_operand<T>(args->residual, args->sum, args->cols);  // nullptr is aligned, and its steps 0
    auto on = static_cast<cudaStream_t>(stream);
    if (!wide) return launch_streamed<T, false>(*args, on);
    return args->cols > LONGEST ? launch_streamed<T, true>(*args, on) : launch<T>(*args, on);
  });
}
