// Kept elements split evenly over warps whatever row they are in; eight lanes per key, 16-byte loads, several keys in
// flight.
//
// A warp has RUN neighbouring elements. Neighbours are mostly of one row, whose q stays in registers as fp32 until
// the row changes. The four groups of a warp work on four keys at once; results are collected so that 32 of them are
// written together.
#include <type_traits>

#include "../common/row_groups.cuh"
#include "sddmm.cuh"

namespace {
using namespace groups;
constexpr int WARPS = 4, RUN = 128;  // warps a block, elements a warp
constexpr unsigned ALL = 0xffffffffu;

// Chunks: chunks of a row that a group holds. Longer rows are processed panel by panel.
template <typename T, int Chunks, bool Wide>
__global__ void __launch_bounds__(32 * WARPS, 4) sddmm_even_split(const SddmmArgs a, int64_t runs) {
  constexpr int Width = WIDTH<T>, Flight = Chunks == 1   ? 4
                                           : Chunks == 2 ? 2
                                                         : 1;  // keys of a group that are loaded together
  const int lane = threadIdx.x % 32, group = lane / LANES, member = lane % LANES;
  const int64_t item = int64_t(blockIdx.x) * WARPS + threadIdx.x / 32;
  if (item >= a.outer * a.inner * runs) return;  // uniform per warp
  const int64_t h = item / runs, first = item % runs * RUN, last = first + RUN < a.nnz ? first + RUN : a.nnz;
  const T* q = static_cast<const T*>(a.q) + h / a.inner * a.q_step[0] + h % a.inner * a.q_step[1];
  const T* k = static_cast<const T*>(a.k) + h / a.inner * a.k_step[0] + h % a.inner * a.k_step[1];
  T* out = static_cast<T*>(a.out) + h * a.nnz;

  float query[Chunks][Width];
  int row_of_query = -1;  // whose q is in registers
  for (int64_t begin = first; begin < last; begin += 32) {
    const int64_t own = begin + lane < last ? begin + lane : last - 1;
    const int my_column = a.columns[own], my_row = a.row_of[own];
    float kept = 0.0f;  // of element begin + member * GROUPS + group
#pragma unroll 1
    for (int step = 0; step < 32 / GROUPS; step += Flight) {
      float dot[Flight] = {};
      for (int64_t panel = 0; panel < a.depth; panel += Chunks * CHUNK<T>) {
        Pack<T> key[Flight][Chunks];
        int row[Flight];
#pragma unroll
        for (int f = 0; f < Flight; ++f) {
          const int from = (step + f) * GROUPS + group;
          const T* source = k + __shfl_sync(ALL, my_column, from) * a.k_step[2];
          row[f] = __shfl_sync(ALL, my_row, from);
#pragma unroll
          for (int c = 0; c < Chunks; ++c)
            key[f][c] = read<T, Wide>(source, panel + c * CHUNK<T> + member * Width, a.depth);
        }
#pragma unroll
        for (int f = 0; f < Flight; ++f) {
          if (row[f] != row_of_query || a.depth > Chunks * CHUNK<T>) {
            row_of_query = row[f];
#pragma unroll
            for (int c = 0; c < Chunks; ++c) {
              const Pack<T> pack =
                  read<T, Wide>(q + row_of_query * a.q_step[2], panel + c * CHUNK<T> + member * Width, a.depth);
#pragma unroll
              for (int e = 0; e < Width; ++e) query[c][e] = to_float(pack.value[e]);
            }
          }
#pragma unroll
          for (int c = 0; c < Chunks; ++c)
#pragma unroll
            for (int e = 0; e < Width; ++e) dot[f] += query[c][e] * to_float(key[f][c].value[e]);
        }
      }
#pragma unroll
      for (int f = 0; f < Flight; ++f) {
#pragma unroll
        for (int distance = LANES / 2; distance > 0; distance /= 2) dot[f] += __shfl_xor_sync(ALL, dot[f], distance);
        if (member == step + f) kept = dot[f];
      }
    }
    const int64_t t = begin + member * GROUPS + group;
    if (t < last) out[t] = from_float<T>(kept);
  }
}

template <typename T, bool Wide> const char* launch(const SddmmArgs& a, cudaStream_t stream) {
  const int64_t runs = (a.nnz + RUN - 1) / RUN, blocks = (a.outer * a.inner * runs + WARPS - 1) / WARPS;
  if (blocks > INT32_MAX) return "unsupported: more than 2^40 kept elements, all heads together";
  auto with = [&](auto chunks) {
    sddmm_even_split<T, chunks.value, Wide><<<unsigned(blocks), 32 * WARPS, 0, stream>>>(a, runs);
    return launch_error();
  };
  if (a.depth <= CHUNK<T>) return with(std::integral_constant<int, 1>{});
  if (a.depth <= 2 * CHUNK<T>) return with(std::integral_constant<int, 2>{});
  return with(std::integral_constant<int, 4>{});
}
}  // namespace

FUSESCOPE_KERNEL(const SddmmArgs* args, void* stream) {
  if (args->block) return "unsupported: BSR (CSR is; v3_blocks takes BSR)";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool fits = wide<T>(args->q, args->q_step, 3, args->depth) && wide<T>(args->k, args->k_step, 3, args->depth);
    auto on = static_cast<cudaStream_t>(stream);
    return fits ? launch<T, true>(*args, on) : launch<T, false>(*args, on);
  });
}
