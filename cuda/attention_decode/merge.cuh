// Merges the partial results of the warps and blocks of an item: sums and contexts relative to their own maximum are
// rescaled to the common one and added in a fixed order.
#pragma once
#include "../common/dependent.cuh"
#include "work_split.cuh"

namespace decode {
// The item that a block begins and does not finish.
struct Unfinished {
  int b, item, last;  // b < 0: none; last: the block that finishes it
  int empty;          // this block has no tiles
};

// The workspace: an Unfinished per block, then 2 slots per block of rows x (D + 2) floats: contexts, then maximum and
// sum of each row. Slot 0 is for an item begun by an earlier block, slot 1 for one that a later block finishes.
struct Workspace {
  Unfinished* unfinished;
  float* slots;
  int rows, head_dim;

  __host__ __device__ Workspace(float* base, int blocks, int rows, int head_dim)
      : unfinished(reinterpret_cast<Unfinished*>(base)),
        slots(base + int64_t(blocks) * (sizeof(Unfinished) / 4)),
        rows(rows),
        head_dim(head_dim) {}
  static int64_t floats(int blocks, int rows, int head_dim) {
    return int64_t(blocks) * (sizeof(Unfinished) / 4) + int64_t(blocks) * 2 * rows * (head_dim + 2);
  }
  __device__ float* slot(int block, int which) const {
    return slots + (int64_t(block) * 2 + which) * rows * (head_dim + 2);
  }
  __device__ float* context(float* slot, int row) const { return slot + row * head_dim; }
  __device__ float* statistics(float* slot, int row) const { return slot + rows * head_dim + 2 * row; }
};

// Shared memory in which the warps of a block merge, up to 8 rows of each; rows are padded against bank conflicts.
template <int Width> struct MergeStorage {
  static constexpr int kRows = 8;
  float context[kWarps][kRows][Width + 8];
  float maximum[kWarps][kRows], sum[kWarps][kRows];
};

// The tiles of one item that a block has computed.
struct Segment {
  bool begins, ends;  // whether the item's first and last tile are among them
  int b, item;
};

// Merges the warps' rows [first, first + count) of the segment; stores finished ones to out, others to the workspace.
// Called by all threads.
template <typename T, int Width>
__device__ __forceinline__ void merge_warps(const AttentionDecodeArgs& a, const MergeStorage<Width>& m,
                                            const Workspace& w, const Segment& s, int most, int first, int count) {
  const int blocks = (group_of(a) + most - 1) / most;
  const int first_row = s.item % blocks * most + first;  // within the group of the KV head
  const int head = s.item / blocks * group_of(a) + first_row;
  const bool whole = s.begins && s.ends;
  float* const slot = w.slot(blockIdx.x, s.begins ? 1 : 0);
  for (int i = threadIdx.x; i < count * a.head_dim; i += kThreads) {
    const int r = i / a.head_dim, d = i % a.head_dim;
    if (first_row + r >= group_of(a)) break;
    float top = -INFINITY, sum = 0.f, context = 0.f;
#pragma unroll
    for (int n = 0; n < kWarps; ++n) top = fmaxf(top, m.maximum[n][r]);
    const float base = top == -INFINITY ? 0.f : top;  // -inf minus -inf would be NaN
#pragma unroll
    for (int n = 0; n < kWarps; ++n) {
      const float weight = exp2_approx(m.maximum[n][r] - base);
      sum += weight * m.sum[n][r];
      context += weight * m.context[n][r][d];
    }
    if (whole) {
      static_cast<T*>(a.out)[(int64_t(s.b) * a.heads + head + r) * a.head_dim + d] =
          from_float<T>(sum == 0.f ? 0.f : context / sum);
    } else {
      w.context(slot, first + r)[d] = context;
      if (d == 0) {
        w.statistics(slot, first + r)[0] = top;
        w.statistics(slot, first + r)[1] = sum;
      }
    }
  }
}

// One block per (block of the first kernel, row): merges the partial results of the item that this block began.
template <typename T>
__global__ void __launch_bounds__(kThreads) merge_partials(const AttentionDecodeArgs a, int splits, int most) {
  wait_for_previous();
  let_next_start();
  const int rows = rows_of(a, most), begun = blockIdx.x / rows, row = blockIdx.x % rows, lane = threadIdx.x % 32;
  const Workspace w(a.workspace, splits, rows, a.head_dim);
  const Unfinished open = w.unfinished[begun];
  if (open.b < 0) return;
  const int blocks = (group_of(a) + most - 1) / most, in_group = open.item % blocks * most + row;
  if (in_group >= group_of(a)) return;
  // Partial result j of the item is in slot 1 of its first block, in slot 0 of the others.
  auto slot = [&](int j) { return w.slot(begun + j, j == 0 ? 1 : 0); };
  const int count = open.last - begun + 1;
  float top = -INFINITY;
  for (int j = lane; j < count; j += 32)
    if (!w.unfinished[begun + j].empty) top = fmaxf(top, w.statistics(slot(j), row)[0]);
  top = warp_max(top);
  const float base = top == -INFINITY ? 0.f : top;
  float sum = 0.f, context[2] = {0.f, 0.f};
  for (int first = 0; first < count; first += 32) {
    const int j = first + lane;
    const bool live = j < count && !w.unfinished[begun + j].empty;
    const float weight = live ? exp2_approx(w.statistics(slot(j), row)[0] - base) : 0.f,
                own = live ? w.statistics(slot(j), row)[1] : 0.f;
    const int here = count - first < 32 ? count - first : 32;
#pragma unroll 8
    for (int n = 0; n < here; ++n) {
      const float factor = __shfl_sync(kAll, weight, n), part = __shfl_sync(kAll, own, n);
      const bool counts = __shfl_sync(kAll, int(live), n) != 0;
      sum += factor * part;
      const float* from = w.context(slot(first + n), row);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int d = threadIdx.x + c * kThreads;
        if (counts && d < a.head_dim) context[c] += factor * from[d];
      }
    }
  }
  const int head = open.item / blocks * group_of(a) + in_group;
  T* out = static_cast<T*>(a.out) + (int64_t(open.b) * a.heads + head) * a.head_dim;
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const int d = threadIdx.x + c * kThreads;
    if (d < a.head_dim) out[d] = from_float<T>(sum == 0.f ? 0.f : context[c] / sum);
  }
}

// Records the item that this block leaves unfinished; one thread. at_end: the last tile of the block's range.
__device__ __forceinline__ void record_unfinished(const AttentionDecodeArgs& a, const Workspace& w, const BlockRange& s,
                                                  const Cursor& at_end) {
  Unfinished found{-1, 0, 0, s.begin >= s.end};
  // The last item began in this block if its first tile is in the range.
  if (!found.empty && at_end.tile + 1 < at_end.tiles) {
    const int64_t first = s.end - 1 - at_end.tile;
    if (first >= s.begin) found = {at_end.b, at_end.item, block_of(first + at_end.tiles - 1, s.total, gridDim.x), 0};
  }
  w.unfinished[blockIdx.x] = found;
}
}  // namespace decode
