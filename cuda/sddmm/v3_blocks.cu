// BSR: one thread block per block of the matrix, q and k staged in shared memory as fp32, a square of results per
// thread in registers.
#include <type_traits>

#include "../common/launch.cuh"
#include "sddmm.cuh"

namespace {
constexpr int STEP = 32;  // columns of q and k that are staged together

// Side: of a block of the matrix. Each of Threads x Threads threads has Own x Own results, Threads apart.
template <int Side> struct Shape {
  static constexpr int Threads = Side == 64 ? 16 : 8, Own = Side / Threads;
};

template <typename T, int Side>
__global__ void __launch_bounds__(Shape<Side>::Threads* Shape<Side>::Threads) sddmm_blocks(const SddmmArgs a) {
  constexpr int Threads = Shape<Side>::Threads, Own = Shape<Side>::Own, All = Threads * Threads;
  __shared__ float q_part[Side][STEP + 1], k_part[Side][STEP + 1];  // padded against bank conflicts
  const int64_t h = blockIdx.x / a.nnz, t = blockIdx.x % a.nnz;
  const int64_t top = int64_t(a.row_of[t]) * Side, left = int64_t(a.columns[t]) * Side;
  const T* q = static_cast<const T*>(a.q) + h / a.inner * a.q_step[0] + h % a.inner * a.q_step[1];
  const T* k = static_cast<const T*>(a.k) + h / a.inner * a.k_step[0] + h % a.inner * a.k_step[1];
  const int y = threadIdx.x / Threads, x = threadIdx.x % Threads;

  float sum[Own][Own] = {};
  for (int64_t d = 0; d < a.depth; d += STEP) {
    for (int i = threadIdx.x; i < Side * STEP; i += All) {
      const int row = i / STEP, column = i % STEP;
      const bool in = d + column < a.depth;
      q_part[row][column] = in && top + row < a.rows ? to_float(q[(top + row) * a.q_step[2] + d + column]) : 0.0f;
      k_part[row][column] = in && left + row < a.keys ? to_float(k[(left + row) * a.k_step[2] + d + column]) : 0.0f;
    }
    __syncthreads();
#pragma unroll 8
    for (int c = 0; c < STEP; ++c) {
      float rows[Own], columns[Own];
#pragma unroll
      for (int i = 0; i < Own; ++i) rows[i] = q_part[y + i * Threads][c], columns[i] = k_part[x + i * Threads][c];
#pragma unroll
      for (int i = 0; i < Own; ++i)
#pragma unroll
        for (int j = 0; j < Own; ++j) sum[i][j] += rows[i] * columns[j];
    }
    __syncthreads();
  }
  T* out = static_cast<T*>(a.out) + (h * a.nnz + t) * Side * Side;
#pragma unroll
  for (int i = 0; i < Own; ++i) {
    const int row = y + i * Threads;
    const uint64_t bits = a.bits[t * Side + row];
#pragma unroll
    for (int j = 0; j < Own; ++j) {
      const int column = x + j * Threads;
      out[row * Side + column] = from_float<T>(bits >> column & 1 ? sum[i][j] : 0.0f);
    }
  }
}
}  // namespace

FUSESCOPE_KERNEL(const SddmmArgs* args, void* stream) {
  if (!args->block) return "unsupported: CSR (BSR is)";
  const int64_t blocks = args->outer * args->inner * args->nnz;
  if (blocks > INT32_MAX) return "unsupported: more than 2^31 blocks, all heads together";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    auto run = [&](auto side) {
      constexpr int threads = Shape<side.value>::Threads * Shape<side.value>::Threads;
      sddmm_blocks<T, side.value><<<unsigned(blocks), threads, 0, static_cast<cudaStream_t>(stream)>>>(*args);
      return launch_error();
    };
    if (args->block == 16) return run(std::integral_constant<int, 16>{});
    if (args->block == 32) return run(std::integral_constant<int, 32>{});
    return run(std::integral_constant<int, 64>{});
  });
}
