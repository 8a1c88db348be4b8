// A warp per query row and head: 8, 16 or 32 lanes a key, four keys of each lane group at once, online softmax in
// registers.
//
// Any dtype and architecture, no shared memory and no barrier. Each lane group keeps the maximum, sum and context of
// the keys it saw; the groups meet once at the end.
#include "../common/exp2.cuh"
#include "../common/device.cuh"
#include "sequences.cuh"

namespace {
constexpr int kWarps = 4, kFlight = 4;  // rows a block, keys of a lane group at once
constexpr unsigned kAll = 0xffffffffu;

// Eight neighbouring elements of a row as fp32; zeros where not inside.
template <typename T> __device__ __forceinline__ void load_eight(float (&to)[8], const T* from, int64_t column_stride,
                                                                 bool vectors, bool inside) {
  alignas(16) T raw[8];
  if (!inside) {
#pragma unroll
    for (int e = 0; e < 8; ++e) raw[e] = from_float<T>(0.f);
  } else if (vectors) {
    constexpr int parts = sizeof(T) * 8 / 16;
#pragma unroll
    for (int i = 0; i < parts; ++i) reinterpret_cast<uint4*>(raw)[i] = reinterpret_cast<const uint4*>(from)[i];
  } else {
#pragma unroll
    for (int e = 0; e < 8; ++e) raw[e] = from[e * column_stride];
  }
#pragma unroll
  for (int e = 0; e < 8; ++e) to[e] = to_float(raw[e]);
}

template <typename T, int Lanes>
__global__ void __launch_bounds__(32 * kWarps, 4) varlen_rowwise(const AttentionVarlenArgs a, int vectors) {
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
  load_eight(query, static_cast<const T*>(a.q) + at * a.q_stride[0] + head * a.q_stride[1] + column * a.q_stride[2],
             a.q_stride[2], false, own);
#pragma unroll
  for (int e = 0; e < 8; ++e) query[e] *= a.scale * kLog2e;

  const int keys = varlen::keys_of_row(a, w, row);
  for (int first = 0; first < keys; first += Groups * kFlight) {
    float key[kFlight][8], value[kFlight][8], score[kFlight];
#pragma unroll
    for (int u = 0; u < kFlight; ++u) {
      const int64_t j = first + u * Groups + group;
      load_eight(key[u], k + (j < keys ? j * a.k_stride[0] : 0), a.k_stride[2], vectors & 1, own && j < keys);
      load_eight(value[u], v + (j < keys ? j * a.v_stride[0] : 0), a.v_stride[2], vectors & 2, own && j < keys);
    }
    float top = maximum;
#pragma unroll
    for (int u = 0; u < kFlight; ++u) {
      float x = 0.f;
#pragma unroll
      for (int e = 0; e < 8; ++e) x += query[e] * key[u][e];
#pragma unroll
      for (int d = 1; d < Lanes; d *= 2) x += __shfl_xor_sync(kAll, x, d);
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
#pragma unroll
  for (int d = Lanes; d < 32; d *= 2) {
    const float other = __shfl_xor_sync(kAll, maximum, d), top = fmaxf(maximum, other),
                base = top == -INFINITY ? 0.f : top;
    const float mine = exp2f(maximum - base), theirs = exp2f(other - base);
    maximum = top;
    sum = mine * sum + theirs * __shfl_xor_sync(kAll, sum, d);
#pragma unroll
    for (int e = 0; e < 8; ++e) context[e] = mine * context[e] + theirs * __shfl_xor_sync(kAll, context[e], d);
  }
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

template <typename T, int Lanes> const char* launch(const AttentionVarlenArgs& a, cudaStream_t stream) {
  const int64_t grid = varlen::slots(a, kWarps) * a.heads;
  if (grid > INT32_MAX) return "unsupported: more than 2^31 blocks of 4 query rows";
  constexpr int eight = 16 / int(sizeof(T));
  auto vectors = [](const void* p, const int64_t* stride) {
    return aligned(p, 16) && stride[2] == 1 && stride[0] % eight == 0 && stride[1] % eight == 0;
  };
  varlen_rowwise<T, Lanes>
      <<<unsigned(grid), 32 * kWarps, 0, stream>>>(a, vectors(a.k, a.k_stride) | vectors(a.v, a.v_stride) << 1);
  return launch_error();
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionVarlenArgs* args, void* stream_) {
  const AttentionVarlenArgs& a = *args;
  if (a.head_dim % 8 || a.head_dim < 32 || a.head_dim > 256)
    return "unsupported: head_dim (a multiple of 8 from 32 to 256 is)";
  auto stream = static_cast<cudaStream_t>(stream_);
  return dispatch(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    return a.head_dim <= 64    ? launch<T, 8>(a, stream)
           : a.head_dim <= 128 ? launch<T, 16>(a, stream)
                               : launch<T, 32>(a, stream);
  });
}
