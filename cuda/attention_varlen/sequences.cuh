// Which rows of which sequence a block works on, found on the device without a list.
//
// Blocks take up to R query rows of one sequence. T_q / R + batch + 1 slots, rounded down, are enough for any lengths,
// so the launch depends on nothing that lies on the device; slots beyond the last block end at once. The rows after the
// last sequence count as one more sequence, without keys.
//
// Up to 31 sequences: a lane each. Sequences are ranked by the keys that their blocks see, within a window no more than
// that lets them, and those with most have the first slots, so that what runs at the end of the grid is short. More:
// sequence b owns the slots from cu_q[b] / R + b on, which are never fewer than its blocks and known from cu_q[b]
// alone, and 32 lanes search for it. In a sequence the last rows come first: under causal they see most keys.
//
// Kernels are instantiated apart for calls with a window (Windowed), so that those without pay nothing for it.
#pragma once
#include <type_traits>

#include "../common/launch.cuh"
#include "attention_varlen.cuh"

namespace varlen {
struct Windowed : AttentionVarlenArgs {
  int32_t left, right;
};
template <typename Args> constexpr bool kWindowed = std::is_same_v<Args, Windowed>;

// launch(args), as the call has a window or none.
template <typename Launch> const char* with_window(const AttentionVarlenArgs& args, const Launch& launch) {
  const auto& call = reinterpret_cast<const AttentionVarlenCall&>(args);
  if (!call.taken) return launch(args);
  *call.taken = true;
  return launch(Windowed{args, call.left, call.right});
}

struct Work {
  int q_first, queries;  // of the sequence: its first row in q, how many
  int k_first, keys;
  int row;  // the block's first row within the sequence; queries or more: nothing to do
};

__device__ __forceinline__ int start_of(const int32_t* cu, int b, int batch, int total) {
  const int at = b == 0 ? 0 : b > batch ? total : cu[b];
  return at < 0 ? 0 : at > total ? total : at;
}

inline int64_t slots(const AttentionVarlenArgs& a, int rows) { return int64_t(a.total_q) / rows + a.batch + 1; }

template <typename V> __device__ __forceinline__ V from_lane(V x, int lane) {
  return __shfl_sync(0xffffffffu, x, lane);
}
__device__ __forceinline__ int warp_max(int x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    const int other = __shfl_xor_sync(0xffffffffu, x, d);
    x = other > x ? other : x;
  }
  return x;
}

__device__ __forceinline__ Work sequence(const AttentionVarlenArgs& a, int b) {
  Work w{};
  if (b > a.batch) return w;
  w.q_first = start_of(a.cu_q, b, a.batch, a.total_q);
  w.queries = start_of(a.cu_q, b + 1, a.batch, a.total_q) - w.q_first;
  w.k_first = b < a.batch ? start_of(a.cu_k, b, a.batch, a.total_k) : 0;
  w.keys = b < a.batch ? start_of(a.cu_k, b + 1, a.batch, a.total_k) - w.k_first : 0;
  return w;
}

template <int R> __device__ __forceinline__ int blocks_of(const Work& w) {
  return w.queries > 0 ? (w.queries - 1) / R + 1 : 0;
}

// The work of a slot where every sequence has a lane.
template <int R, typename Args> __device__ __forceinline__ Work ranked(const Args& a, int slot) {
  const int lane = threadIdx.x % 32;
  Work w = sequence(a, lane);
  const int blocks = blocks_of<R>(w);
  int most = w.keys;  // that a block sees
  if constexpr (kWindowed<Args>) most = a.left + a.right + R < most ? a.left + a.right + R : most;
  int first = 0;  // slots of the sequences with more keys; of equal ones the earlier comes first
#pragma unroll 8
  for (int other = 0; other <= a.batch; ++other) {
    const int keys = from_lane(most, other), theirs = from_lane(blocks, other);
    if (keys > most || (keys == most && other < lane)) first += theirs;
  }
  const int owner = warp_max(slot >= first && slot - first < blocks ? lane : -1);
  if (owner < 0) return Work{};
  const int row = (blocks - 1 - (slot - first)) * R;
  return {from_lane(w.q_first, owner), from_lane(w.queries, owner), from_lane(w.k_first, owner),
          from_lane(w.keys, owner), from_lane(row, owner)};
}

// The work of a slot of more sequences: 32 lanes try 32 places at once, two rounds up to 1024 sequences.
template <int R> __device__ __forceinline__ Work searched(const AttentionVarlenArgs& a, int slot) {
  const int lane = threadIdx.x % 32;
  int b = 0, count = a.batch + 1;  // it is one of b ... b + count - 1
  while (count > 1) {
    const int step = (count + 31) / 32, at = b + lane * step;
    const int last =
        warp_max(lane * step < count && start_of(a.cu_q, at, a.batch, a.total_q) / R + at <= slot ? lane : 0);
    b += last * step;
    count = count - last * step < step ? count - last * step : step;
  }
  Work w = sequence(a, b);
  const int blocks = blocks_of<R>(w), turn = slot - (w.q_first / R + b);
  if (turn >= blocks) return Work{};
  w.row = (blocks - 1 - turn) * R;
  return w;
}

// What a block of R query rows does in this slot; whole warps call it.
template <int R, typename Args> __device__ __forceinline__ Work work_of(const Args& a, int slot) {
  return a.batch < 32 ? ranked<R>(a, slot) : searched<R>(a, slot);
}

// Where the keys that the row sees end; 0 or less: it sees none.
__device__ __forceinline__ int keys_of_row(const AttentionVarlenArgs& a, const Work& w, int row) {
  const int upto = row + w.keys - w.queries + 1;
  return a.causal && upto < w.keys ? upto : w.keys;
}

// Row i sees the keys j < i + diagonal that there are; of them within a window the last `width`.
__device__ __forceinline__ int diagonal_of(const AttentionVarlenArgs& a, const Work& w) {
  return a.causal ? w.keys - w.queries + 1 : w.keys;
}
__device__ __forceinline__ int diagonal_of(const Windowed& a, const Work& w) {
  return w.keys - w.queries + 1 + a.right;
}
__device__ __forceinline__ int width_of(const Windowed& a) { return a.left + a.right + 1; }

__device__ __forceinline__ int keys_of_row(const Windowed& a, const Work& w, int row) {
  const int upto = row + diagonal_of(a, w);
  return upto < w.keys ? upto : w.keys;
}

// The first key that the row sees, where it sees any. Kernels call it where kWindowed alone: a call that gives 0 still
// changes the machine code.
__device__ __forceinline__ int first_of_row(const AttentionVarlenArgs&, const Work&, int) { return 0; }
__device__ __forceinline__ int first_of_row(const Windowed& a, const Work& w, int row) {
  const int first = row + diagonal_of(a, w) - width_of(a);
  return first > 0 ? first : 0;
}
}  // namespace varlen
