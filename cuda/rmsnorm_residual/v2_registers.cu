// The sum in registers: x and residual read once, as 16-byte vectors; 8 lanes to a block per row, by its length, and
// more threads for a row where rows are few.
//
// All of a thread's x and residual is under way before the first is converted, the weights too in whole rows; elsewhere
// the zeros beyond the row are merged into the residual before the weights are asked for. Decoding has 1 to 16 rows:
// there each thread gets one or two vectors, so that a row is in flight at once, and the kernel may start while the
// product before it ends.
#include "../common/dependent.cuh"
#include "../common/divisor.cuh"
#include "../common/raw.cuh"
#include "../common/reduce.cuh"
#include "../common/row.cuh"
#include "rmsnorm_residual.cuh"

namespace {
constexpr int LEAST = 128;  // threads of a block
template <int Threads> constexpr int BLOCK = Threads < LEAST ? LEAST : Threads;

// The sum of each value over the Threads neighbouring lanes of a group, or over the block, for every thread of it. Once
// per kernel where it is a block.
template <int Threads, int Count> __device__ __forceinline__ void sum_over_group(float (&value)[Count]) {
#pragma unroll
  for (int distance = (Threads < 32 ? Threads : 32) / 2; distance > 0; distance /= 2)
#pragma unroll
    for (int i = 0; i < Count; ++i) value[i] += __shfl_xor_sync(0xffffffffu, value[i], distance);
  if constexpr (Threads > 32) {
    static_assert(Count == 1, "a block has one row");
    __shared__ float part[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) part[warp] = value[0];
    __syncthreads();
    value[0] = warp_reduce<Sum>(lane < Threads / 32 ? part[lane] : 0.0f);
  }
}

// Group g of a block has its rows g, + groups, ..., Rows of them; fewer than 2^31 rows. Whole: rows of Threads * Each
// elements, one per block, so without tests of what lies inside.
template <typename T, int Threads, int Each, int Rows, bool Whole>
__global__ void __launch_bounds__(BLOCK<Threads>) rmsnorm_residual_registers(RmsnormResidualArgs args, Divisor inner) {
  constexpr int groups = BLOCK<Threads> / Threads, width = 16 / int(sizeof(T)), packs = Each / width;
  static_assert(!Whole || groups * Rows == 1, "no row beyond the last");
  constexpr bool weights_first = Each <= 16;  // more do not fit beside the row
  const int lane = threadIdx.x % Threads, cols = Whole ? Threads * Each : int(args.cols), rows = int(args.rows);
  const uint32_t block_row = blockIdx.x * (groups * Rows) + threadIdx.x / Threads;
  auto place = [&](int p) { return (p * Threads + lane) * width; };
  // Beyond the last row: the last again, since its lanes take part in shuffles. Beyond the last column: zeros.
  auto row_of = [&](int i) {
    const uint32_t r = block_row + i * groups;
    return Whole || r < uint32_t(rows) ? r : uint32_t(rows - 1);
  };
  auto mine = [&](int i, int p) {
    return Whole || (place(p) < cols && (groups * Rows == 1 || block_row + i * groups < uint32_t(rows)));
  };
  auto data = [&](const RmsnormRows& of, uint32_t r) {
    const uint32_t outer = inner.quotient(r);
    return static_cast<const T*>(of.data) + outer * of.outer_step + (r - outer * inner.value) * of.inner_step;
  };
  row::Raw<T, width> x[Rows][packs], residual[Rows][packs], weight[packs];
  auto read = [&](row::Raw<T, width>(&to)[packs], const T* from) {
#pragma unroll
    for (int p = 0; p < packs; ++p) to[p].read(from + place(p), Whole || place(p) < cols);
  };
  wait_for_previous();
  let_next_start();
#pragma unroll
  for (int i = 0; i < Rows; ++i) read(x[i], data(args.x, row_of(i)));
  if (args.residual.data) {
#pragma unroll
    for (int i = 0; i < Rows; ++i) read(residual[i], data(args.residual, row_of(i)));
  }
  if constexpr (weights_first) read(weight, static_cast<const T*>(args.weight));

  float value[Rows][Each], squares[Rows];
#pragma unroll
  for (int i = 0; i < Rows; ++i)
#pragma unroll
    for (int j = 0; j < Each; ++j) value[i][j] = x[i][j / width][j % width];
  if (args.residual.data) {
#pragma unroll
    for (int i = 0; i < Rows; ++i) {
      T* const to = static_cast<T*>(args.sum) + int64_t(row_of(i)) * cols;
#pragma unroll
      for (int p = 0; p < packs; ++p) {
        row::Rounded<T, width> sum;
#pragma unroll
        for (int e = 0; e < width; ++e) sum.set(e, value[i][p * width + e] += residual[i][p][e]);
        if (mine(i, p)) sum.write(to + place(p));
      }
    }
  }
#pragma unroll
  for (int i = 0; i < Rows; ++i) {
    squares[i] = 0.0f;
#pragma unroll
    for (int j = 0; j < Each; ++j) squares[i] += value[i][j] * value[i][j];
  }
  sum_over_group<Threads>(squares);
  if constexpr (!weights_first) read(weight, static_cast<const T*>(args.weight));
#pragma unroll
  for (int i = 0; i < Rows; ++i) {
    const float scale = rsqrtf(squares[i] / float(cols) + args.eps);
    T* const to = static_cast<T*>(args.out) + int64_t(row_of(i)) * cols;
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      row::Rounded<T, width> out;
#pragma unroll
      for (int e = 0; e < width; ++e) out.set(e, value[i][p * width + e] * (scale * weight[p][e]));
      if (mine(i, p)) out.write(to + place(p));
    }
  }
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

// Threads, elements per thread and rows per thread for rows of `cols`, at most LONGEST. few: rows too few to occupy the
// device by a warp or 256 threads each; many: enough to occupy it with several rows per thread.
template <typename Body> const char* by_length(int64_t cols, bool few, bool many, Body body) {
  auto with = [&]<int Threads, int Each, int Rows, bool Whole = false>() {
    return body(std::integral_constant<int, Threads>{}, std::integral_constant<int, Each>{},
                std::integral_constant<int, Rows>{}, std::bool_constant<Whole>{});
  };
  if (cols <= 64) return many ? with.template operator()<8, 8, 4>() : with.template operator()<8, 8, 1>();
  if (cols <= 128) return many ? with.template operator()<16, 8, 4>() : with.template operator()<16, 8, 1>();
  if (cols <= 256) return many ? with.template operator()<32, 8, 2>() : with.template operator()<32, 8, 1>();
  if (!few && cols <= 512) return with.template operator()<32, 16, 1>();
  // A warp per row takes 72 registers, 7 blocks per multiprocessor: with 2048 rows on an H100, the blocks of two calls
  // do not fit together. This takes 32: 16 blocks, as many as its threads allow.
  if (!few && cols == 1024) return with.template operator()<128, 8, 1, true>();
  if (cols <= 1024) return with.template operator()<128, 8, 1>();
  if (few && cols <= 4096) return with.template operator()<512, 8, 1>();
  if (cols <= 4096) return with.template operator()<256, 16, 1>();
  if (cols <= 8192) return with.template operator()<1024, 8, 1>();
  return with.template operator()<512, 32, 1>();
}

template <typename T, bool Wide> const char* launch_streamed(const RmsnormResidualArgs& args, cudaStream_t stream) {
  if (args.rows > row::MOST_BLOCKS) return "unsupported: more than 2^31 rows";
  rmsnorm_residual_streamed<T, Wide><<<unsigned(args.rows), STREAM, 0, stream>>>(args);
  return launch_error();
}

template <typename T> const char* launch(const RmsnormResidualArgs& args, cudaStream_t stream) {
  if (args.rows > INT32_MAX - 1024) return "unsupported: 2^31 rows or more";
  const bool few = args.rows < 4 * int64_t(multiprocessors()), many = args.rows >= 128 * int64_t(multiprocessors());
  return by_length(args.cols, few, many, [&](auto threads, auto each, auto rows, auto whole) -> const char* {
    constexpr int block = BLOCK<threads.value>, block_rows = block / threads.value * rows.value;
    return launch_dependent(rmsnorm_residual_registers<T, threads.value, each.value, rows.value, whole.value>,
                            unsigned((args.rows + block_rows - 1) / block_rows), unsigned(block), 0, stream, 1, args,
                            Divisor(int32_t(args.inner)));
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
