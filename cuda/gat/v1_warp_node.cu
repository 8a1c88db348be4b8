// One warp per node and head: 8 lanes per neighbour, four neighbours at once; a neighbour's features are read once, for
// its score and the sum.
//
// Each group of 8 lanes keeps the running maximum, sum and weighted features of the neighbours it saw; the four groups
// merge once at the end. The nodes with the most neighbours come first.
#include "../common/eight.cuh"
#include "../common/exp2.cuh"
#include "../common/launch.cuh"
#include "gat.cuh"

namespace {
constexpr int kWarps = 4, kGroups = 4;
constexpr unsigned kAll = 0xffffffffu;

// Eight features of a row as floats, zeros beyond the last.
template <bool Vector, typename T>
__device__ __forceinline__ void load_features(float (&to)[8], const T* row, int chunk, int features) {
  if constexpr (Vector) {
    if (8 * chunk >= features) {
#pragma unroll
      for (int i = 0; i < 8; ++i) to[i] = 0.f;
      return;
    }
    Eight<T> eight;
    constexpr int parts = sizeof(Eight<T>) / 16;
#pragma unroll
    for (int i = 0; i < parts; ++i)
      reinterpret_cast<uint4*>(&eight)[i] = reinterpret_cast<const uint4*>(row + 8 * chunk)[i];
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = to_float(eight.value[i]);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = 8 * chunk + i < features ? to_float(row[8 * chunk + i]) : 0.f;
  }
}

// Chunks: chunks of eight features per lane, ceil(F / 64). Vector: rows are 16-byte aligned.
template <typename T, int Chunks, bool Vector>
__global__ void __launch_bounds__(32 * kWarps) gat_warp_node(const GatArgs a) {
  const int64_t item = int64_t(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (item >= a.nodes * a.heads) return;  // uniform per warp
  const int lane = threadIdx.x % 32, group = lane / 8, member = lane % 8;
  const int64_t node = a.order[item / a.heads], head = item % a.heads;
  const T* x = static_cast<const T*>(a.x) + head * a.x_step[1];
  const T* left = static_cast<const T*>(a.left) + head * a.features;
  const T* right_row = static_cast<const T*>(a.right) + head * a.features;

  float right[Chunks][8], context[Chunks][8] = {}, own = 0.f;
#pragma unroll
  for (int c = 0; c < Chunks; ++c) {
    float mine[8], weight[8];
    load_features<Vector>(mine, x + node * a.x_step[0], member + 8 * c, a.features);
    load_features<Vector>(weight, left, member + 8 * c, a.features);
    load_features<Vector>(right[c], right_row, member + 8 * c, a.features);
#pragma unroll
    for (int i = 0; i < 8; ++i) own = fmaf(weight[i], mine[i], own);
  }
#pragma unroll
  for (int distance = 1; distance < 8; distance <<= 1) own += __shfl_xor_sync(kAll, own, distance);

  float maximum = -INFINITY, sum = 0.f;  // of this group's neighbours, scores in units of log2
  const int first = a.row_offsets[node], last = a.row_offsets[node + 1];
  for (int at = first; at < last; at += kGroups) {
    const bool live = at + group < last;
    const T* row = x + (live ? a.columns[at + group] : node) * a.x_step[0];
    float value[Chunks][8], score = 0.f;
#pragma unroll
    for (int c = 0; c < Chunks; ++c) {
      load_features<Vector>(value[c], row, member + 8 * c, a.features);
#pragma unroll
      for (int i = 0; i < 8; ++i) score = fmaf(right[c][i], value[c][i], score);
    }
#pragma unroll
    for (int distance = 1; distance < 8; distance <<= 1) score += __shfl_xor_sync(kAll, score, distance);
    score += own;
    score = live ? kLog2e * (score < 0.f ? score * a.slope : score) : -INFINITY;
    const float raised = fmaxf(maximum, score);
    const float base = raised == -INFINITY ? 0.f : raised;  // -inf minus -inf would be NaN
    const float shrink = exp2f(maximum - base), weight = exp2f(score - base);
    maximum = raised;
    sum = sum * shrink + weight;
#pragma unroll
    for (int c = 0; c < Chunks; ++c)
#pragma unroll
      for (int i = 0; i < 8; ++i) context[c][i] = fmaf(weight, live ? value[c][i] : 0.f, context[c][i] * shrink);
  }

  float top = maximum;
  top = fmaxf(top, __shfl_xor_sync(kAll, top, 8));
  top = fmaxf(top, __shfl_xor_sync(kAll, top, 16));
  const float shrink = top == -INFINITY ? 0.f : exp2f(maximum - top);
  sum *= shrink;
  sum += __shfl_xor_sync(kAll, sum, 8);
  sum += __shfl_xor_sync(kAll, sum, 16);
  const float inverse = sum == 0.f ? 0.f : 1.f / sum;
  T* out = static_cast<T*>(a.out) + (node * a.heads + head) * a.features;
#pragma unroll
  for (int c = 0; c < Chunks; ++c)
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float total = context[c][i] * shrink;
      total += __shfl_xor_sync(kAll, total, 8);
      total += __shfl_xor_sync(kAll, total, 16);
      const int f = 8 * (member + 8 * c) + i;
      if (group == 0 && f < a.features) out[f] = from_float<T>(total * inverse);
    }
}

template <typename T, int Chunks, bool Vector> void launch(const GatArgs& a, unsigned grid, cudaStream_t stream) {
  gat_warp_node<T, Chunks, Vector><<<grid, 32 * kWarps, 0, stream>>>(a);
}

template <typename T, bool Vector> void by_width(const GatArgs& a, unsigned grid, cudaStream_t stream) {
  switch ((a.features + 63) / 64) {
    case 1:
      launch<T, 1, Vector>(a, grid, stream);
      break;
    case 2:
      launch<T, 2, Vector>(a, grid, stream);
      break;
    case 3:
      launch<T, 3, Vector>(a, grid, stream);
      break;
    default:
      launch<T, 4, Vector>(a, grid, stream);
  }
}

bool aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
}  // namespace

FUSESCOPE_KERNEL(const GatArgs* args, void* stream_) {
  const GatArgs& a = *args;
  const int64_t grid = (a.nodes * a.heads + kWarps - 1) / kWarps;
  if (grid > INT32_MAX) return "unsupported: more than 2^33 nodes, all heads together";
  auto stream = static_cast<cudaStream_t>(stream_);
  return dispatch(a.dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    const bool vector = a.features % 8 == 0 && aligned16(a.x) && aligned16(a.left) && aligned16(a.right) &&
                        a.x_step[0] % 8 == 0 && a.x_step[1] % 8 == 0;
    vector ? by_width<T, true>(a, unsigned(grid), stream) : by_width<T, false>(a, unsigned(grid), stream);
    return launch_error();
  });
}
