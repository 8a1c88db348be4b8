// Joins the pieces of an item inside the launch that computes them: the block that finishes last does it.
//
// Why no block reads a piece that is not written, or one twice:
//   - Thread 0 of a block begins the tickets of its pieces (../common/tickets.cuh) before it computes them.
//   - A block writes its piece (ordinary stores by all threads), __syncthreads() (1), then thread 0 alone arrives at
//   the
//     item's ticket by an atomic addition with acquire and release order at GPU scope (2). The barrier orders the other
//     threads' stores before it, and release is cumulative.
//   - The arrivals at a ticket form a chain of read-modify-writes, so the last one observes all earlier ones.
//     __syncthreads() (3) orders the loads of its block's other threads after it.
//   - Nobody waits for another block, so blocks may run in any order and one after another.
// Pieces are added in the order of the shares, whoever joins them: the same call gives the same bits.
#pragma once
#include "../common/mma.cuh"
#include "../common/tickets.cuh"
#include "added_scores.cuh"
#include "merge.cuh"
#include "shares.cuh"

namespace decode {
// The workspace: a ticket per share, that of an item being its first share's; then two pieces per share of rows x D
// contexts, then maximum and sum of each row. Piece 0 is of an item that an earlier share begins, piece 1 of one that a
// later share ends.
struct Pieces {
  uint64_t* tickets;
  float* pieces;
  int rows, head_dim;

  __host__ __device__ static int piece_floats(int rows, int head_dim) { return (rows * (head_dim + 2) + 3) / 4 * 4; }
  static int64_t floats(int blocks, int rows, int head_dim) {
    return (blocks + 1) / 2 * 4 + int64_t(blocks) * 2 * piece_floats(rows, head_dim);
  }
  __device__ Pieces(float* base, int blocks, int rows, int head_dim)
      : tickets(reinterpret_cast<uint64_t*>(base)),
        pieces(base + (blocks + 1) / 2 * 4),
        rows(rows),
        head_dim(head_dim) {}
  __device__ float* piece(unsigned share, int which) const {
    return pieces + (int64_t(share) * 2 + which) * piece_floats(rows, head_dim);
  }
  __device__ float* statistics(float* piece, int row) const { return piece + rows * head_dim + 2 * row; }
};

// What of a row's sum the result is divided by; 0: the row sees no key. top: what the sum is relative to, in Units.
template <bool Biased>
__device__ __forceinline__ float divisor(const AttentionDecodeGeneral& g, int head, float top, float sum) {
  using Unit = Units<Biased>;
  return g.sinks && sum != 0.f ? sum + Unit::weight(g.sinks[head] * Unit::of_score - top) : sum;
}

// The tiles of one item that a block has computed.
struct Run {
  bool begins, ends;  // whether the item's first and last tile are among them
  int b, head_kv, first_row;
};

// Merges the warps' rows [first, first + count) of the run into out, or into `piece` where that is given. By all
// threads.
template <typename T, int Width, bool Biased>
__device__ __forceinline__ void merge_run(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g,
                                          const MergeStorage<Width>& m, const Pieces& w, const Run& run, float* piece,
                                          int first, int count) {
  for (int i = threadIdx.x; i < count * a.head_dim; i += kThreads) {
    const int r = i / a.head_dim, d = i % a.head_dim, row = run.first_row + first + r;
    if (row >= all_rows(a, g)) break;
    float top = -INFINITY, sum = 0.f, context = 0.f;
#pragma unroll
    for (int n = 0; n < kWarps; ++n) top = fmaxf(top, m.maximum[n][r]);
    const float base = top == -INFINITY ? 0.f : top;  // -inf minus -inf would be NaN
#pragma unroll
    for (int n = 0; n < kWarps; ++n) {
      const float weight = Units<Biased>::weight(m.maximum[n][r] - base);
      sum += weight * m.sum[n][r];
      context += weight * m.context[n][r][d];
    }
    if (piece) {
      piece[(first + r) * a.head_dim + d] = context;
      if (d == 0) {
        w.statistics(piece, first + r)[0] = top;
        w.statistics(piece, first + r)[1] = sum;
      }
    } else {
      const float by = divisor<Biased>(g, run.head_kv * group_of(a) + row / g.tokens, base, sum);
      const int64_t at = int64_t(run.b) * a.heads * g.tokens + run.head_kv * all_rows(a, g) + row;
      static_cast<T*>(a.out)[at * a.head_dim + d] = from_float<T>(by == 0.f ? 0.f : context / by);
    }
  }
}

// Adds the pieces of shares first ... last to one result: a warp per row, a lane per four of each 128 columns. By all
// threads.
template <typename T, int Width, bool Biased>
__device__ __forceinline__ void join(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g, const Pieces& w,
                                     const Run& run, unsigned first, unsigned last) {
  constexpr int Parts = (Width + 127) / 128;
  const int lane = threadIdx.x % 32, pieces = int(last - first) + 1;
  auto column = [&](int part) { return 4 * lane + 128 * part; };
  auto piece = [&](int j) { return w.piece(first + j, j == 0); };
  for (int r = threadIdx.x / 32; r < w.rows; r += kWarps) {
    const int row = run.first_row + r;
    if (row >= all_rows(a, g)) break;
    float top = -INFINITY;
    for (int j = lane; j < pieces; j += 32) top = fmaxf(top, w.statistics(piece(j), r)[0]);
    top = warp_max(top);
    const float base = top == -INFINITY ? 0.f : top;
    float sum = 0.f, context[Parts][4] = {};
    for (int from = 0; from < pieces; from += 32) {
      const int j = from + lane;
      float weight = 0.f, own = 0.f;
      if (j < pieces) {
        const float* statistics = w.statistics(piece(j), r);
        weight = Units<Biased>::weight(statistics[0] - base);
        own = statistics[1];
      }
      const int here = pieces - from < 32 ? pieces - from : 32;
#pragma unroll 8
      for (int n = 0; n < here; ++n) {
        const float factor = __shfl_sync(kAll, weight, n);
        sum += factor * __shfl_sync(kAll, own, n);
#pragma unroll
        for (int p = 0; p < Parts; ++p)
          if (column(p) < a.head_dim) {
            const float4 part = *reinterpret_cast<const float4*>(piece(from + n) + r * a.head_dim + column(p));
            context[p][0] += factor * part.x, context[p][1] += factor * part.y;
            context[p][2] += factor * part.z, context[p][3] += factor * part.w;
          }
      }
    }
    const float by = divisor<Biased>(g, run.head_kv * group_of(a) + row / g.tokens, base, sum);
    const float inverse = by == 0.f ? 0.f : 1.f / by;
    const int64_t at = int64_t(run.b) * a.heads * g.tokens + run.head_kv * all_rows(a, g) + row;
#pragma unroll
    for (int p = 0; p < Parts; ++p)
      if (column(p) < a.head_dim)
        *reinterpret_cast<uint2*>(static_cast<T*>(a.out) + at * a.head_dim + column(p)) =
            uint2{tensor_core::pack<T>(context[p][0] * inverse, context[p][1] * inverse),
                  tensor_core::pack<T>(context[p][2] * inverse, context[p][3] * inverse)};
  }
}
}  // namespace decode
