// Dot products in fp32: a block takes four outputs for up to four rows, its warps share the columns.
//
// A thread holds eight 16-byte pieces of weights in flight, the next step's while it computes with this one's, and
// requests the first before the kernel before it has ended, where that did not write them. More rows are further
// blocks, which read the weights again, from L2. The parts of a sum are added in one fixed order.
#include "../common/dependent.cuh"
#include "../common/reduce.cuh"
#include "sixteen.cuh"

namespace {
constexpr int THREADS = 128, WARPS = THREADS / 32, OUTPUTS = 4, STEP = THREADS * 16;  // columns of a step

template <typename T, int Format, bool Wide, int Rows>
__global__ void __launch_bounds__(THREADS) weight_only_dot(LinearWeightOnlyArgs args, unsigned groups) {
  __shared__ float parts[WARPS][OUTPUTS * Rows];
  const int64_t first = int64_t(blockIdx.x / groups) * OUTPUTS, row = int64_t(blockIdx.x % groups) * Rows;
  const int64_t terms = args.terms;
  const uint8_t* weight[OUTPUTS];
  const T* x[Rows];
#pragma unroll
  for (int n = 0; n < OUTPUTS; ++n)  // beyond the last output the last one again, whose sum is not written
    weight[n] = args.weight + (first + n < args.outputs ? first + n : args.outputs - 1) * args.weight_row;
#pragma unroll
  for (int r = 0; r < Rows; ++r) x[r] = static_cast<const T*>(args.x) + (row + r) * args.x_row;

  int64_t k = threadIdx.x * 16;
  uint4 next[OUTPUTS];
  if (!args.settled) wait_for_previous();
#pragma unroll
  for (int n = 0; n < OUTPUTS; ++n) next[n] = load_weights<Wide>(weight[n], k, terms);
  wait_for_previous();
  let_next_start();
  float sum[OUTPUTS][Rows] = {};
  for (; k < terms; k += STEP) {
    uint4 now[OUTPUTS];
    Sixteen<T> in[Rows];
#pragma unroll
    for (int n = 0; n < OUTPUTS; ++n) now[n] = next[n], next[n] = load_weights<Wide>(weight[n], k + STEP, terms);
#pragma unroll
    for (int r = 0; r < Rows; ++r) in[r] = load_x<T, Wide>(x[r], k, terms, row + r < args.rows);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float of_x[Rows][4];
#pragma unroll
      for (int r = 0; r < Rows; ++r)
#pragma unroll
        for (int e = 0; e < 4; ++e) of_x[r][e] = to_float(in[r].value[4 * i + e]);
#pragma unroll
      for (int n = 0; n < OUTPUTS; ++n) {
        float w[4];
        four_floats<Format>(word_of(now[n], i), w);
#pragma unroll
        for (int r = 0; r < Rows; ++r)
#pragma unroll
          for (int e = 0; e < 4; ++e) sum[n][r] += w[e] * of_x[r][e];
      }
    }
  }
#pragma unroll
  for (int n = 0; n < OUTPUTS; ++n)
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      const float whole = warp_reduce<Sum>(sum[n][r]);
      if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32][r * OUTPUTS + n] = whole;
    }
  __syncthreads();
  if (threadIdx.x >= OUTPUTS * Rows) return;
  const int64_t n = first + threadIdx.x % OUTPUTS, r = row + threadIdx.x / OUTPUTS;
  if (n >= args.outputs || r >= args.rows) return;
  float whole = 0.0f;
#pragma unroll
  for (int warp = 0; warp < WARPS; ++warp) whole += parts[warp][threadIdx.x];
  finish_one<T>(args, r, n, whole);
}

template <typename T, int Format, bool Wide, int Rows>
const char* launch(const LinearWeightOnlyArgs& args, cudaStream_t stream) {
  const int64_t groups = (args.rows + Rows - 1) / Rows, blocks = (args.outputs + OUTPUTS - 1) / OUTPUTS * groups;
  if (blocks > INT32_MAX) return "unsupported: more than 2^31 blocks of four outputs and four rows";
  return launch_dependent(weight_only_dot<T, Format, Wide, Rows>, unsigned(blocks), unsigned(THREADS), 0, stream, 1,
                          args, unsigned(groups));
}
}  // namespace

FUSESCOPE_KERNEL(const LinearWeightOnlyArgs* args, void* stream) {
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    auto on = static_cast<cudaStream_t>(stream);
    return with_format<T>(*args, [&](auto format, auto wide) {
      constexpr int f = decltype(format)::value;
      if constexpr (!decltype(wide)::value) return launch<T, f, false, 4>(*args, on);
      if (args->rows == 1) return launch<T, f, true, 1>(*args, on);
      return args->rows == 2 ? launch<T, f, true, 2>(*args, on) : launch<T, f, true, 4>(*args, on);
    });
  });
}
