// BSR: one thread block per block row and 64 columns; blocks of values and rows of v staged in shared memory as fp32,
// results in registers.
#include <type_traits>

#include "../common/launch.cuh"
#include "spmm.cuh"

namespace {
constexpr int THREADS = 16, ALL = THREADS * THREADS, WIDE = 64,
              OWN = WIDE / THREADS;  // columns of the output a block, a thread

// Side: of a block of the matrix; each of 16 x 16 threads has Side / 16 rows and 4 columns of the output, 16 apart.
template <typename T, int Side>
__global__ void __launch_bounds__(ALL) spmm_blocks(const SpmmArgs a, int64_t lists, int64_t panels) {
  constexpr int Rows = Side / THREADS;
  __shared__ float weight[Side][Side + 1], part[Side][WIDE];
  const int64_t list = a.order[blockIdx.x % lists], panel = blockIdx.x / lists % panels,
                h = blockIdx.x / lists / panels;
  const T* values = static_cast<const T*>(a.values) + h / a.inner * a.values_step[0] + h % a.inner * a.values_step[1];
  const T* v = static_cast<const T*>(a.v) + h / a.inner * a.v_step[0] + h % a.inner * a.v_step[1];
  const int y = threadIdx.x / THREADS, x = threadIdx.x % THREADS;

  float sum[Rows][OWN] = {};
  for (int t = a.row_offsets[list]; t < a.row_offsets[list + 1]; ++t) {
    const int64_t left = int64_t(a.columns[t]) * Side;
    for (int i = threadIdx.x; i < Side * Side; i += ALL)
      weight[i / Side][i % Side] = to_float(values[int64_t(t) * Side * Side + i]);
    for (int i = threadIdx.x; i < Side * WIDE; i += ALL) {
      const int64_t row = left + i / WIDE, column = panel * WIDE + i % WIDE;
      part[i / WIDE][i % WIDE] = row < a.keys && column < a.depth ? to_float(v[row * a.v_step[2] + column]) : 0.0f;
    }
    __syncthreads();
#pragma unroll 8
    for (int c = 0; c < Side; ++c) {
      float rows[Rows], columns[OWN];
#pragma unroll
      for (int i = 0; i < Rows; ++i) rows[i] = weight[y + i * THREADS][c];
#pragma unroll
      for (int j = 0; j < OWN; ++j) columns[j] = part[c][x + j * THREADS];
#pragma unroll
      for (int i = 0; i < Rows; ++i)
#pragma unroll
        for (int j = 0; j < OWN; ++j) sum[i][j] += rows[i] * columns[j];
    }
    __syncthreads();
  }
  T* out = static_cast<T*>(a.out) + h * a.rows * a.depth;
#pragma unroll
  for (int i = 0; i < Rows; ++i)
#pragma unroll
    for (int j = 0; j < OWN; ++j) {
      const int64_t row = list * Side + y + i * THREADS, column = panel * WIDE + x + j * THREADS;
      if (row < a.rows && column < a.depth) out[row * a.depth + column] = from_float<T>(sum[i][j]);
    }
}
}  // namespace

FUSESCOPE_KERNEL(const SpmmArgs* args, void* stream) {
  if (!args->block) return "unsupported: CSR (BSR is)";
  const int64_t lists = (args->rows + args->block - 1) / args->block, panels = (args->depth + WIDE - 1) / WIDE;
  const int64_t blocks = args->outer * args->inner * lists * panels;
  if (blocks > INT32_MAX) return "unsupported: more than 2^31 block rows, all heads together";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    auto run = [&](auto side) {
      spmm_blocks<T, side.value><<<unsigned(blocks), ALL, 0, static_cast<cudaStream_t>(stream)>>>(*args, lists, panels);
      return launch_error();
    };
    if (args->block == 16) return run(std::integral_constant<int, 16>{});
    if (args->block == 32) return run(std::integral_constant<int, 32>{});
    return run(std::integral_constant<int, 64>{});
  });
}
