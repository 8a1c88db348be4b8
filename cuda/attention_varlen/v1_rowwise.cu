// One warp per query row and head: 8, 16 or 32 lanes per key, four keys of each lane group at once, online softmax in
// registers.
// takes: window
//
// Any dtype and architecture, no shared memory and no barrier. Each lane group keeps the maximum, sum and context of
// the keys it saw; the groups merge once at the end.
#include "../attention/lane_groups.cuh"
#include "../common/eight.cuh"
#include "../common/exp2.cuh"
#include "sequences.cuh"

namespace {
constexpr int kWarps = 4, kFlight = 4;  // rows a block, keys of a lane group at once

// Eight neighbouring elements of a row as fp32; zeros where not inside.
template <typename T> __device__ __forceinline__ void load_floats(float (&to)[8], const T* from, int64_t column_stride,
                                                                  bool vectors, bool inside) {
  alignas(16) T raw[8];
  load_eight(raw, from, column_stride, vectors, inside);
#pragma unroll
  for (int e = 0; e < 8; ++e) to[e] = to_float(raw[e]);
}

template <typename T, int Lanes, typename Args>
__global__ void __launch_bounds__(32 * kWarps, 4) varlen_rowwise(const Args a, int vectors) {
  constexpr int Groups = 32 / Lanes;
  const varlen::Work w = varlen::work_of<kWarps>(a, int(blockIdx.x / a.heads));
  const int head = int(blockIdx.x % a.heads), head_kv = head / (a.heads / a.heads_kv);
  const int lane = threadIdx.x % 32, group = lane / Lanes, column = lane % Lanes * 8,
            row = w.row + int(threadIdx.x / 32);
  if (row >= w.queries) return;  // a whole warp leaves; there is no barrier to miss
  const bool own = column < a.head_dim;
  const int64_t at = w.q_first + row;
  const T* k =
      static_cast<const T*>(a.k) + w.k_first * a.k_stride[0] + head_kv * a.k_stride[1] + column * a.k_stride[2];
  const T* v =
      static_cast<const T*>(a.v) + w.k_first * a.v_stride[0] + head_kv * a.v_stride[1] + column * a.v_stride[2];

  float query[8], context[8] = {}, maximum = -INFINITY, sum = 0.f;
  load_floats(query, static_cast<const T*>(a.q) + at * a.q_stride[0] + head * a.q_stride[1] + column * a.q_stride[2],
              a.q_stride[2], false, own);
#pragma unroll
  for (int e = 0; e < 8; ++e) query[e] *= a.scale * kLog2e;

  const int keys = varlen::keys_of_row(a, w, row);
  for (int first = varlen::kWindowed<Args> ? varlen::first_of_row(a, w, row) : 0; first < keys;
       first += Groups * kFlight) {
    float key[kFlight][8], value[kFlight][8], score[kFlight];
#pragma unroll
    for (int u = 0; u < kFlight; ++u) {
      const int64_t j = first + u * Groups + group;
      load_floats(key[u], k + (j < keys ? j * a.k_stride[0] : 0), a.k_stride[2], vectors & 1, own && j < keys);
      load_floats(value[u], v + (j < keys ? j * a.v_stride[0] : 0), a.v_stride[2], vectors & 2, own && j < keys);
    }
    float top = maximum;
#pragma unroll
    for (int u = 0; u < kFlight; ++u) {
      float x = 0.f;
#pragma unroll
      for (int e = 0; e < 8; ++e) x += query[e] * key[u][e];
#pragma unroll
      for (int d = 1; d < Lanes; d *= 2) x += __shfl_xor_sync(kAllLanes, x, d);
      score[u] = first + u * Groups + group < keys ? x : -INFINITY;
      top = fmaxf(top, score[u]);
    }
    const float base = top == -INFINITY ? 0.f : top;  // -inf minus -inf would be NaN
    const float shrink = exp2f(maximum - base);
    maximum = top;
    sum *= shrink;
#pragma unroll
    for (int e = 0; e < 8; ++e) context[e] *= shrink;
#pragma unroll
    for (int u = 0; u < kFlight; ++u) {
      const float weight = exp2f(score[u] - base);
      sum += weight;
#pragma unroll
      for (int e = 0; e < 8; ++e) context[e] += weight * value[u][e];
    }
  }
  merge_lane_groups<Lanes>(maximum, sum, context, [](float x) { return exp2f(x); });
  if (group == 0 && own) {
    const float inverse = sum == 0.f ? 0.f : 1.f / sum;  // a row without a key is zeros
    alignas(16) T out[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) out[e] = from_float<T>(context[e] * inverse);
    uint4* to = reinterpret_cast<uint4*>(static_cast<T*>(a.out) + (at * a.heads + head) * a.head_dim + column);
#pragma unroll
    for (int i = 0; i < int(sizeof(T)) / 2; ++i) to[i] = reinterpret_cast<const uint4*>(out)[i];
  }
}

template <typename T, int Lanes, typename Args> const char* launch(const Args& a, cudaStream_t stream) {
  const int64_t grid = varlen::slots(a, kWarps) * a.heads;
  if (grid > INT32_MAX) return "unsupported: more than 2^31 blocks of 4 query rows";
  const int vectors = has_vectors(a.k, a.k_stride, sizeof(T)) | has_vectors(a.v, a.v_stride, sizeof(T)) << 1;
  varlen_rowwise<T, Lanes, Args><<<unsigned(grid), 32 * kWarps, 0, stream>>>(a, vectors);
  return launch_error();
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionVarlenArgs* args, void* stream_) {
  const AttentionVarlenArgs& a = *args;
  auto stream = static_cast<cudaStream_t>(stream_);
  return dispatch(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    return with_width<64, 128, 256>(a.head_dim, [&](auto width) {
      return varlen::with_window(a, [&](const auto& args) { return launch<T, width / 8>(args, stream); });
    });
  });
}
