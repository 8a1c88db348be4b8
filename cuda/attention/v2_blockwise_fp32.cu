// fp32 products on 64 x 64 tiles: every architecture and dtype, a live tile of K and V read once for 64 rows.
// takes: softcap+sinks score
// tiles: 1 per block, 2 blocks per SM
//
// 256 threads as 16 x 16; thread (y, x) has rows 4 y + i and keys x + 16 j of the scores, and rows 4 y + i and columns
// 4 x + j of each 64 output columns. Operands are fp32 in shared memory whatever they are outside; rows are padded by
// four floats, so that eight lanes that read 16 bytes each hit different banks. Scores are summed over 32 columns of
// head size at a time, so any head size fits. Without tensor cores for the dtype (fp32, and 16 bits before sm_80) this
// is the tiled kernel, and v1 the one for few live keys.
#include "row_again.cuh"
#include "score.cuh"

namespace {
constexpr int kTile = ATTENTION_TILE, kThreads = 256, kDepth = 32;
constexpr int kNarrow = kDepth + 4, kWide = kTile + 4;  // floats per row in shared memory

template <typename T> struct alignas(4 * sizeof(T)) Four {
  T value[4];
};

// Rows of one of q, k, v; whether they allow 16-byte loads.
template <typename T> struct Rows {
  const T* first;
  int64_t row_stride, column_stride;
  bool vectors;
};

// Eight neighbouring elements of a row as floats; zeros beyond the rows or the head.
template <typename T> __device__ __forceinline__ void load_floats(float* to, const Rows<T>& from, int row, int rows,
                                                                  int column, int head_dim) {
  float4 out[2] = {};
  if (row < rows && column < head_dim) {
    const Eight<T> eight =
        load_eight(from.first + row * from.row_stride + column * from.column_stride, from.column_stride, from.vectors);
#pragma unroll
    for (int h = 0; h < 2; ++h)
      out[h] = make_float4(to_float(eight.value[4 * h]), to_float(eight.value[4 * h + 1]),
                           to_float(eight.value[4 * h + 2]), to_float(eight.value[4 * h + 3]));
  }
  reinterpret_cast<float4*>(to)[0] = out[0];
  reinterpret_cast<float4*>(to)[1] = out[1];
}

__device__ __forceinline__ float dot(float4 a, float4 b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

struct PlainArgs : AttentionArgs {
  static constexpr bool given = false;
  __device__ __forceinline__ AttentionScored scored() const { return {}; }
};
// With a bias, softcap or sinks: scores are in natural units then (row_loop.cuh says why).
struct ScoredArgs : AttentionArgs {
  static constexpr bool given = true;
  AttentionScored more;
  __device__ __forceinline__ const AttentionScored& scored() const { return more; }
};

// Panels: 64-column panels of the head, ceil(D / 64).
template <typename T, int Panels, typename Args>
__global__ void __launch_bounds__(kThreads, Panels <= 2 ? 2 : 1) attention_blockwise_fp32(
    const __grid_constant__ Args a, int vectors) {
  auto power = [](float x) { return exp2f(Args::given ? x * kLog2e : x); };
  __shared__ __align__(16) float operands[2 * kTile * kNarrow];  // 32 columns of q and of k; later 64 of v
  __shared__ __align__(16) float weights[kTile * kWide];
  float* const q_part = operands;
  float* const k_part = operands + kTile * kNarrow;

  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  const QueryTile at(a, blockIdx.x);
  const int row0 = at.first_row();
  const Rows<T> q{at.query<T>(a), a.q_stride[2], a.q_stride[3], bool(vectors & 1)};
  const Rows<T> k{at.keys<T>(a), a.k_stride[2], a.k_stride[3], bool(vectors & 2)};
  const Rows<T> v{at.values<T>(a), a.v_stride[2], a.v_stride[3], bool(vectors & 4)};
  const float scale = Args::given ? a.scale : a.scale * kLog2e;
  float maximum[4], sum[4], out[Panels][4][4] = {};  // sum: this thread's keys only
#pragma unroll
  for (int i = 0; i < 4; ++i) maximum[i] = -INFINITY, sum[i] = 0.f;

  const int position = row0 + 4 * y + a.seq_k - a.seq_q;
  const ExpressedRow rows[4] = {{a.scored(), at.b, at.head, position},
                                {a.scored(), at.b, at.head, position + 1},
                                {a.scored(), at.b, at.head, position + 2},
                                {a.scored(), at.b, at.head, position + 3}};

  for (int item = at.begin; item < at.end; ++item) {
    const int first = (a.row_ptr ? a.tile_index[item] : item) * kTile, code = a.row_ptr ? a.tile_code[item] : -1;
    float score[4][4] = {};
    for (int depth = 0; depth < a.head_dim; depth += kDepth) {
      __syncthreads();  // all threads are done with the previous contents
      const int r = threadIdx.x / 4, c = threadIdx.x % 4 * 8;
      load_floats<T>(q_part + r * kNarrow + c, q, row0 + r, a.seq_q, depth + c, a.head_dim);
      load_floats<T>(k_part + r * kNarrow + c, k, first + r, a.seq_k, depth + c, a.head_dim);
      __syncthreads();
#pragma unroll
      for (int d = 0; d < kDepth; d += 4) {
        float4 rows[4], keys[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          rows[i] = *reinterpret_cast<const float4*>(q_part + (4 * y + i) * kNarrow + d);
          keys[i] = *reinterpret_cast<const float4*>(k_part + (x + 16 * i) * kNarrow + d);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) score[i][j] = dot(rows[i], keys[j], score[i][j]);
      }
    }

    const int live = a.seq_k - first < kTile ? a.seq_k - first : kTile;
    const uint64_t edge = live == kTile ? ~0ull : (1ull << live) - 1;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = row0 + 4 * y + i;
      const uint64_t word = (code < 0 ? edge : a.bitmaps[int64_t(code) * kTile + 4 * y + i]) >> x;
      float top = maximum[i];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int column = first + x + 16 * j;
        score[i][j] *= scale;
        if constexpr (Args::given) {
          const float softcap = a.more.softcap;
          if constexpr (kExpressed)
            score[i][j] = rows[i](score[i][j], column, float(first + x), float(16 * j));
          else if (softcap > 0.f)
            score[i][j] = softcap * tanhf(score[i][j] / softcap);
          if (a.bias && row < a.seq_q && column < a.seq_k)
            score[i][j] += bias_at(a, at.b * a.bias_stride[0] + at.head * a.bias_stride[1] + row * a.bias_stride[2] +
                                          column * a.bias_stride[3]);
        }
        if (!(word >> (16 * j) & 1)) score[i][j] = -INFINITY;
        top = fmaxf(top, score[i][j]);
      }
#pragma unroll
      for (int distance = 1; distance < 16; distance <<= 1)
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, distance));
      const float base = top == -INFINITY ? 0.f : top;  // -inf minus -inf would be NaN
      const float shrink = power(maximum[i] - base);
      maximum[i] = top;
      sum[i] *= shrink;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float weight = power(score[i][j] - base);
        sum[i] += weight;
        weights[(4 * y + i) * kWide + x + 16 * j] = weight;
      }
#pragma unroll
      for (int p = 0; p < Panels; ++p)
#pragma unroll
        for (int j = 0; j < 4; ++j) out[p][i][j] *= shrink;
    }

#pragma unroll
    for (int p = 0; p < Panels; ++p) {
      __syncthreads();  // all threads are done with the operands; the next barrier publishes the weights
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int index = threadIdx.x + i * kThreads, r = index / 8, c = index % 8 * 8;
        load_floats<T>(operands + r * kWide + c, v, first + r, a.seq_k, p * kTile + c, a.head_dim);
      }
      __syncthreads();
#pragma unroll 4
      for (int key = 0; key < kTile; key += 4) {
        float weight[4][4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          *reinterpret_cast<float4*>(weight[i]) = *reinterpret_cast<const float4*>(weights + (4 * y + i) * kWide + key);
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const float4 value = *reinterpret_cast<const float4*>(operands + (key + n) * kWide + 4 * x);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            out[p][i][0] = fmaf(weight[i][n], value.x, out[p][i][0]);
            out[p][i][1] = fmaf(weight[i][n], value.y, out[p][i][1]);
            out[p][i][2] = fmaf(weight[i][n], value.z, out[p][i][2]);
            out[p][i][3] = fmaf(weight[i][n], value.w, out[p][i][3]);
          }
        }
      }
    }
  }

  T* const to = at.out<T>(a);
  unsigned broken = 0;  // of the warp's eight rows, those of which this thread has a NaN
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (Args::given) {
      const float sink = a.more.sinks ? a.more.sinks[at.head] : -INFINITY;
      if (sink != -INFINITY) {  // a key more, of value zero
        const float top = fmaxf(maximum[i], sink), shrink = power(maximum[i] - top);
        sum[i] = sum[i] * shrink + (x == 0 ? power(sink - top) : 0.f);
#pragma unroll
        for (int p = 0; p < Panels; ++p)
#pragma unroll
          for (int j = 0; j < 4; ++j) out[p][i][j] *= shrink;
      }
    }
    float total = sum[i];
#pragma unroll
    for (int distance = 1; distance < 16; distance <<= 1) total += __shfl_xor_sync(0xffffffffu, total, distance);
    const float inverse = total == 0.f ? 0.f : 1.f / total;  // rows without a live key are zeros
    if (row0 + 4 * y + i >= a.seq_q) continue;
    float all = 0.f;
#pragma unroll
    for (int p = 0; p < Panels; ++p) {
      const int column = p * kTile + 4 * x;
      if (column >= a.head_dim) continue;
      Four<T> four;
#pragma unroll
      for (int j = 0; j < 4; ++j) all += out[p][i][j], four.value[j] = from_float<T>(out[p][i][j] * inverse);
      *reinterpret_cast<Four<T>*>(to + (4 * y + i) * a.out_stride[2] + column) = four;
    }
    if (all != all) broken |= 1u << (4 * (y & 1) + i);
  }
  row_again::attend_broken<T>(a, a.scored(), at.b, at.head, row0 + 4 * (y & ~1), broken);
}

}  // namespace

FUSESCOPE_KERNEL(const AttentionArgs* args, void* stream_) {
  const AttentionArgs& a = *args;
  const int64_t grid = QueryTile::blocks(a);
  if (grid > INT32_MAX) return "unsupported: more than 2^31 tiles of 64 query rows";
  if (const char* why = refused_by_expression(a)) return why;
  const AttentionScored scored = take_scored(a);
  auto stream = static_cast<cudaStream_t>(stream_);
  return dispatch(a.dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    return with_width<64, 128, 192, 256>(a.head_dim, [&](auto width) -> const char* {
      if constexpr (!is_built<T, width>()) {
        return kOtherBuild;
      } else {
        const int vectors = vectors_of(a, sizeof(T));
        if constexpr (!kExpressed) {
          if (!a.bias && !scored.given()) {
            const PlainArgs plain{a};
            attention_blockwise_fp32<T, width / 64, PlainArgs><<<unsigned(grid), kThreads, 0, stream>>>(plain, vectors);
            return launch_error();
          }
        }
        const ScoredArgs with{a, scored};
        attention_blockwise_fp32<T, width / 64, ScoredArgs><<<unsigned(grid), kThreads, 0, stream>>>(with, vectors);
        return launch_error();
      }
    });
  });
}
