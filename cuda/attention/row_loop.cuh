// One query row by one warp: 8 lanes per key, four keys at once, online softmax in registers, shuffles only.
//
// Each group of 8 lanes keeps the running maximum, sum and output of its keys; the four groups merge once at the end.
// Of a partial tile only the keys whose bit is set are loaded, so whatever lies at other keys is unseen by
// construction.
#pragma once
#include "../common/exp2.cuh"
#include "rows.cuh"
#include "score.cuh"

namespace row_loop {
constexpr int kGroups = 4;  // keys per warp at a time
constexpr unsigned kAll = 0xffffffffu;

// Chunks: 8-element chunks of a row per lane, ceil(D / 64). Unroll: keys in flight per group. vectors: 16-byte loads.
// Scored: with a bias, softcap, expression or sinks; scores are in natural units then, because a bias near the end of
// the range of fp32 times log2 e is beyond it, else in units of log2. keys: of a row without lists, the first so many
// are live.
template <typename T, int Chunks, int Unroll, bool Scored>
__device__ __forceinline__ void attend_row(const AttentionArgs& a, const AttentionScored& scored, int b, int head,
                                           int row, int keys, bool vectors) {
  constexpr float kUnit = Scored ? 1.f : kLog2e, kToLog2 = Scored ? kLog2e : 1.f;
  const int lane = threadIdx.x & 31, group = lane >> 3, member = lane & 7;
  const int head_kv = head / (a.heads / a.heads_kv);
  const int live_chunks = a.head_dim / 8;
  const T* q = static_cast<const T*>(a.q) + b * a.q_stride[0] + head * a.q_stride[1] + row * a.q_stride[2];
  const T* k = static_cast<const T*>(a.k) + b * a.k_stride[0] + head_kv * a.k_stride[1];
  const T* v = static_cast<const T*>(a.v) + b * a.v_stride[0] + head_kv * a.v_stride[1];
  const int64_t bias_row = a.bias ? b * a.bias_stride[0] + head * a.bias_stride[1] + row * a.bias_stride[2] : 0;

  const int64_t q_step = vectors ? 1 : a.q_stride[3], k_step = vectors ? 1 : a.k_stride[3],
                v_step = vectors ? 1 : a.v_stride[3];
  float query[Chunks][8], context[Chunks][8] = {};
#pragma unroll
  for (int c = 0; c < Chunks; ++c) {
    const int chunk = member + 8 * c;
    Eight<T> eight{};
    if (chunk < live_chunks) eight = load_eight(q + 8 * chunk * q_step, q_step, vectors);
#pragma unroll
    for (int i = 0; i < 8; ++i) query[c][i] = chunk < live_chunks ? to_float(eight.value[i]) * (a.scale * kUnit) : 0.f;
  }
  float maximum = -INFINITY, sum = 0.f;  // of this group's keys
  const ExpressedRow expressed(scored, b, head, row + a.seq_k - a.seq_q);

  // One step: this group's Unroll keys (a negative one is none). Scores, new maximum, rescale, add.
  auto step = [&](const int (&key)[Unroll]) {
    float score[Unroll];
    bool live[Unroll];
    Eight<T> value[Unroll][Chunks];
#pragma unroll
    for (int u = 0; u < Unroll; ++u) {
      float dot = 0.f;
#pragma unroll
      for (int c = 0; c < Chunks; ++c) {
        const int chunk = member + 8 * c;
        if (key[u] >= 0 && chunk < live_chunks) {
          Eight<T> eight = load_eight(k + key[u] * a.k_stride[2] + 8 * chunk * k_step, k_step, vectors);
          value[u][c] = load_eight(v + key[u] * a.v_stride[2] + 8 * chunk * v_step, v_step, vectors);
#pragma unroll
          for (int i = 0; i < 8; ++i) dot = fmaf(query[c][i], to_float(eight.value[i]), dot);
        }
      }
      score[u] = dot;
    }
#pragma unroll
    for (int u = 0; u < Unroll; ++u) {
#pragma unroll
      for (int distance = 1; distance < 8; distance <<= 1) score[u] += __shfl_xor_sync(kAll, score[u], distance);
      live[u] = key[u] >= 0;
      if constexpr (Scored) {
        if constexpr (kExpressed) {
          score[u] = expressed(score[u], key[u]);
          live[u] = live[u] && score[u] != -INFINITY;  // which masks its key, as a bias does
        } else if (scored.softcap > 0.f) {
          score[u] = scored.softcap * tanhf(score[u] / scored.softcap);
        }
        if (a.bias && live[u]) {
          const float extra = bias_at(a, bias_row + key[u] * a.bias_stride[3]);
          live[u] = extra != -INFINITY;  // which masks its key, whatever k and v hold there
          score[u] += extra;
        }
      }
      if (!live[u]) score[u] = -INFINITY;
    }
    float raised = maximum;
#pragma unroll
    for (int u = 0; u < Unroll; ++u) raised = fmaxf(raised, score[u]);
    const float base = raised == -INFINITY ? 0.f : raised;  // -inf minus -inf would be NaN
    const float shrink = exp2f((maximum - base) * kToLog2);
    maximum = raised;
    sum *= shrink;
#pragma unroll
    for (int c = 0; c < Chunks; ++c)
#pragma unroll
      for (int i = 0; i < 8; ++i) context[c][i] *= shrink;
#pragma unroll
    for (int u = 0; u < Unroll; ++u) {
      const float weight = exp2f((score[u] - base) * kToLog2);
      sum += weight;
#pragma unroll
      for (int c = 0; c < Chunks; ++c)
        if (live[u] && member + 8 * c < live_chunks)
#pragma unroll
          for (int i = 0; i < 8; ++i) context[c][i] = fmaf(weight, to_float(value[u][c].value[i]), context[c][i]);
    }
  };

  // The keys first .. first + count - 1, all live: group g has g, g + 4, ...
  auto run_dense = [&](int first, int count) {
    for (int at = 0; at < count; at += kGroups * Unroll) {
      int key[Unroll];
#pragma unroll
      for (int u = 0; u < Unroll; ++u) {
        const int offset = at + u * kGroups + group;
        key[u] = offset < count ? first + offset : -1;
      }
      step(key);
    }
  };
  // The keys first + position of each set bit: group g has set bits number g, g + 4, ...
  auto run_sparse = [&](int first, uint64_t word) {
    uint64_t mine = word;  // the group's next key is the lowest bit left
    for (int i = 0; i < group; ++i) mine &= mine - 1;
    for (int at = 0, count = __popcll(word); at < count; at += kGroups * Unroll) {
      int key[Unroll];
#pragma unroll
      for (int u = 0; u < Unroll; ++u) {
        key[u] = mine ? first + __ffsll(static_cast<long long>(mine)) - 1 : -1;
#pragma unroll
        for (int i = 0; i < kGroups; ++i) mine &= mine - 1;  // 0 & anything stays 0
      }
      step(key);
    }
  };

  if (!a.row_ptr) {
    run_dense(0, keys);
  } else {
    const int q_tiles = (a.seq_q + ATTENTION_TILE - 1) / ATTENTION_TILE;
    const int64_t list = int64_t(b * a.mask_stride_b + head * a.mask_stride_h) * q_tiles + row / ATTENTION_TILE;
    for (int i = a.row_ptr[list]; i < a.row_ptr[list + 1]; ++i) {
      const int first = a.tile_index[i] * ATTENTION_TILE, code = a.tile_code[i];
      const int count = a.seq_k - first < ATTENTION_TILE ? a.seq_k - first : ATTENTION_TILE;
      const uint64_t word = code < 0 ? ~0ull : a.bitmaps[int64_t(code) * ATTENTION_TILE + row % ATTENTION_TILE];
      if (word == ~0ull)
        run_dense(first, count);
      else if (word)
        run_sparse(first, word);
    }
  }

  // Merge the four groups: common maximum, then sums.
  float top = maximum;
  top = fmaxf(top, __shfl_xor_sync(kAll, top, 8));
  top = fmaxf(top, __shfl_xor_sync(kAll, top, 16));
  float sink = -INFINITY;
  if constexpr (Scored) {
    if (scored.sinks) sink = scored.sinks[head];
    top = fmaxf(top, sink);
  }
  const float shrink = top == -INFINITY ? 0.f : exp2f((maximum - top) * kToLog2);
  sum *= shrink;
  sum += __shfl_xor_sync(kAll, sum, 8);
  sum += __shfl_xor_sync(kAll, sum, 16);
  if constexpr (Scored)
    if (sink != -INFINITY) sum += exp2f((sink - top) * kToLog2);
  const float inverse = sum == 0.f ? 0.f : 1.f / sum;  // a NaN sum stays NaN
  T* out = static_cast<T*>(a.out) + b * a.out_stride[0] + head * a.out_stride[1] + row * a.out_stride[2];
#pragma unroll
  for (int c = 0; c < Chunks; ++c) {
    const int chunk = member + 8 * c;
    Eight<T> eight;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float x = context[c][i] * shrink;
      x += __shfl_xor_sync(kAll, x, 8);
      x += __shfl_xor_sync(kAll, x, 16);
      eight.value[i] = from_float<T>(x * inverse);
    }
    if (group == 0 && chunk < live_chunks)
      *reinterpret_cast<Eight<T>*>(out + 8 * chunk) = eight;  // out is aligned (binding.cpp)
  }
}
}  // namespace row_loop
