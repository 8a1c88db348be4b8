// Epilogue of work items (parts.h) on Hopper: rows go to global memory final, as a partial result of a split list, or
// merged (log-sum-exp) with the rows of earlier parts.
//
// TMA stores results while the next item is computed. Where they have shared memory of their own, rows of earlier parts
// are prefetched by TMA like queries and keys (hopper_producer.cuh); else they take the place of the item's queries,
// and so do those rows.
#pragma once
#include "../common/dependent.cuh"
#include "../common/launch.cuh"
#include "../common/nan_watch.cuh"
#include "../common/warpgroup.cuh"
#include "hopper_log_sums.cuh"
#include "hopper_partials.cuh"
#include "hopper_shared.cuh"
#include "hopper_step.cuh"
#include "row_again.cuh"

namespace hopper {

constexpr int kWarpRows = 16;  // rows of a query tile per warp

struct WorkItems {
  const int4* items;
  const int4* schedule;
  Partials partials;
  float* lse;  // log-sum-exp of every row (hopper_log_sums.cuh); nullptr where the mask is one part
  int64_t out_stride[3];
  int rounds, workers;
  int q_modulus, q_length;
  bool has_previous, has_next;  // parts before this one, whose rows are merged; parts after it
  int k_length;                 // keys of a residue class: all of them where they are in their own order

  __device__ __forceinline__ int4 item(int round, int worker) const {
    return round < rounds && worker < workers ? items[int64_t(round) * workers + worker] : make_int4(-1, 0, 0, 0);
  }
  static __device__ __forceinline__ int group(int x) { return x % kItemGroups; }
  static __device__ __forceinline__ uint32_t reused(int x) { return uint32_t(x) / kItemGroups; }
  static __device__ __forceinline__ uint32_t steps(int w) { return uint32_t(w) % kItemSteps; }
  static __device__ __forceinline__ int slot(int w) { return int(uint32_t(w) / kItemSteps) - 1; }

  // By a consumer warp, before its first item: begins the tickets that it will arrive at.
  template <int Tiles> __device__ __forceinline__ void begin_tickets(int worker, int tile) const {
    if (!partials.tag) return;
    if (has_previous) wait_for_previous();
    for (int from = 0; from < rounds; from += 32) {
      const int4 mine = item(from + threadIdx.x % 32, worker);
      if (mine.x >= 0 && slot(mine.w) >= 0) partials.begin<Tiles>(slot(mine.w), tile);
    }
    __syncwarp();
  }

  // Index and residue of a query's position in the strided-permuted order; likewise of a key's.
  __device__ __forceinline__ int2 strided_index(int position) const {
    if (q_modulus == 1) return make_int2(position, 0);
    return strided_index(position, q_length);
  }
  __device__ __forceinline__ int2 strided_key(int position) const { return strided_index(position, k_length); }
  static __device__ __forceinline__ int2 strided_index(int position, int length) {
    const uint32_t residue = uint32_t(position) / uint32_t(length);
    return make_int2(position - int(residue) * length, int(residue));
  }
  __device__ __forceinline__ int row_of(int position) const {
    const int2 at = strided_index(position);
    return at.x * q_modulus + at.y;
  }
  // This warp's first row of the warpgroup's query tile.
  static __device__ __forceinline__ int warp_rows() { return kWarpRows * (threadIdx.x / 32 % 4); }
  // This thread's first row; its second is 8 further on.
  static __device__ __forceinline__ int first_row(int warp_rows) { return warp_rows + threadIdx.x % 32 / 4; }

  // Log-sum-exp of this thread's two rows over earlier parts, -inf for rows beyond the last; position: the warp's first
  // row.
  __device__ __forceinline__ void previous_lse(const AttentionArgs& args, int head, int position,
                                               float (&before)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int at = first_row(position) + 8 * r;
      before[r] = has_previous && at < args.seq_q ? lse[int64_t(head) * args.seq_q + row_of(at)] : -INFINITY;
    }
  }

  // Factors of this part's rows (which normalise too) and of the earlier parts' rows in their merge; writes the merged
  // log-sum-exp for later parts. A sink is a key of the first part, which has an item for every row.
  template <typename Args>
  __device__ __forceinline__ void merge_weights(const Args& args, int head, int position, const float (&sum)[2],
                                                const float (&reference)[2], const float (&before)[2], float (&mine)[2],
                                                float (&previous)[2]) const {
    float sink = -INFINITY;
    if constexpr (kScored<Args>)
      if (!has_previous && args.more.sinks) sink = args.more.sinks[head % args.heads];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      mine[r] = sum[r] > 0.f ? __fdividef(1.f, sum[r]) : 0.f;
      previous[r] = 0.f;
      if (!lse) continue;
      float now = log_sum_exp<Args>(sum[r], reference[r], sink);
      if (has_previous && kBiasedItems<Args>) {
        now = merge_naturally(before[r], now, mine[r], previous[r]);
      } else if (has_previous) {
        const float top = fmaxf(before[r], now), shift = top == -INFINITY ? 0.f : top;
        const float old_share = exp2_approx(before[r] - shift), new_share = exp2_approx(now - shift),
                    all = old_share + new_share;
        previous[r] = all > 0.f ? old_share / all : 0.f;
        mine[r] *= all > 0.f ? new_share / all : 0.f;
        now = all > 0.f ? shift + log2f(all) : -INFINITY;
      }
      const int at = first_row(position) + 8 * r;
      __syncwarp();  // all lanes of the row have read the old value
      if (has_next && at < args.seq_q && threadIdx.x % 4 == 0) lse[int64_t(head) * args.seq_q + row_of(at)] = now;
    }
    if constexpr (kScored<Args>) divide_with_sink(mine, sink, sum, reference, kBiasedItems<Args> ? kLog2e : 1.f);
  }

  // Stores a warp's 16 rows of fragments to the tile, from first_row and block first_sixteen on, Sixteens blocks of 16
  // columns. HasPrevious: merges them with the rows of earlier parts that the tile holds. Gives the thread's rows that
  // hold a NaN, as bits.
  template <bool HasPrevious, typename T, int Sixteens>
  __device__ __forceinline__ unsigned store_fragments(uint8_t* tile, int first_row, int first_sixteen, const float* o,
                                                      const float (&mine)[2], const float (&previous)[2]) const {
    // Lane i addresses row i % 8 of 8 x 8 matrix i / 8, so that matrix m holds register m of each thread.
    const int lane = threadIdx.x % 32, row = first_row + lane % 16;
    const uint32_t first = shared_address(tile) + row * 128 + ((lane / 16 ^ lane % 8) << 4);
    NanWatch<T> watch[2];
#pragma unroll
    for (int n = 0; n < Sixteens; ++n) {
      const int j = first_sixteen + n;
      const uint32_t at = (first ^ (j % 4 << 5)) + j / 4 * kTileBytes;
      uint32_t there[4], out[4];
      if constexpr (HasPrevious) tensor_core::ldmatrix_x4(there, at);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = i % 2, from = 8 * n + 4 * (i / 2) + 2 * r;
        float x[2] = {o[from] * mine[r], o[from + 1] * mine[r]};
        if constexpr (HasPrevious) {
          T two[2];
          memcpy(two, &there[i], 4);
          x[0] += to_float(two[0]) * previous[r];
          x[1] += to_float(two[1]) * previous[r];
        }
        out[i] = tensor_core::pack<T>(x[0], x[1]);
        watch[r].add(out[i]);
      }
      stmatrix_x4(at, out);
    }
    return (watch[0].found() ? 1u << lane / 4 : 0) | (watch[1].found() ? 256u << lane / 4 : 0);
  }

  // Rows that came out as NaN are computed again over the whole mask, so later parts have nothing to add.
  template <typename T, typename Args>
  __device__ __forceinline__ void attend_broken(const Args& args, int head, int position, unsigned broken) const {
    row_again::attend_broken<T, kScored<Args>>(args, scored_of(args), head / args.heads, head % args.heads, position,
                                               broken, row_again::kEveryKey,
                                               {q_modulus, q_length, has_next && !kBiasedItems<Args> ? lse : nullptr});
    if constexpr (kBiasedItems<Args>)  // its log-sum-exps may be row_again::kComplete
      for (; has_next && broken; broken &= broken - 1) {
        const int at = position + __ffsll(broken) - 1;
        if (at < args.seq_q) lse[int64_t(head) * args.seq_q + row_of(at)] = kCompleteLogSum;
      }
  }

  // Stores a warpgroup's query tile to out by TMA, each warp its own rows so that none waits for another. n: number of
  // the fill of the ring out, filled by the producer warp where there are earlier parts; before: from previous_lse().
  // Gives what store_fragments does.
  template <typename T, int Panels, int Tiles, typename Args, typename Ring, typename State>
  __device__ __forceinline__ unsigned store_by_tma(const Args& args, const CUtensorMap* out_map, int head, int batch,
                                                   int q_tile, const Ring& out, uint32_t n, const State& rows,
                                                   const float (&before)[2]) const {
    auto await = [this, &out, n](bool leader) {
      if (has_previous) {
        out.await_full(n);
      } else {
        if (leader) await_tma_reads<0>();  // the store of the result before has read the ring
        __syncwarp();
      }
    };
    auto started = [this, &out] {
      if (!has_previous) return;
      await_tma_reads<0>();
      barrier_arrive(out.empty, 1);
    };
    return store_when<T, Panels, Tiles>(args, out_map, head, batch, q_tile, out.at(n), rows, before, await, started);
  }

  // The same where results take the place of the group's queries, which the warpgroup's products have read; TMA reads
  // them until lane 0 of each warp has waited for it.
  template <typename T, int Panels, int Tiles, typename Args, typename State>
  __device__ __forceinline__ unsigned store_in_place(const Args& args, const CUtensorMap* out_map, int head, int batch,
                                                     int q_tile, uint8_t* queries, const State& rows,
                                                     const float (&before)[2]) const {
    auto await = [&](bool) {
      if (has_previous)
        load_previous<T, Panels>(args, head, batch, q_tile, queries + q_tile % Tiles * (Panels * kTileBytes));
    };
    return store_when<T, Panels, Tiles>(args, out_map, head, batch, q_tile, queries, rows, before, await, [] {});
  }

  // group: shared memory for all query tiles of the group; await(leader): waits until the warp may write there and,
  // where there are earlier parts, their rows are there; started(): called by the leader, lane 0, when it has issued
  // the stores.
  template <typename T, int Panels, int Tiles, typename Args, typename State, typename Await, typename Started>
  __device__ __forceinline__ unsigned store_when(const Args& args, const CUtensorMap* out_map, int head, int batch,
                                                 int q_tile, uint8_t* group, const State& rows,
                                                 const float (&before)[2], Await await, Started started) const {
    uint8_t* const tile = group + q_tile % Tiles * (Panels * kTileBytes);
    const bool leader = threadIdx.x % 32 == 0;
    const int first = warp_rows(), position = q_tile * 64 + first;
    const float sum[2] = {rows.sum(0), rows.sum(1)};
    float mine[2], previous[2];
    merge_weights(args, head, position, sum, rows.reference, before, mine, previous);
    await(leader);
    const unsigned broken = has_previous
                                ? store_fragments<true, T, 4 * Panels>(tile, first, 0, rows.o, mine, previous)
                                : store_fragments<false, T, 4 * Panels>(tile, first, 0, rows.o, mine, previous);
    fence_async_proxy();
    __syncwarp();
    if (!leader) return broken;
    const int2 at = strided_index(position);
    for (int p = 0; p < Panels; ++p)
      store_tile(tile + p * kTileBytes + first * 128, out_map, 64 * p, at.x, at.y, head - batch * args.heads, batch);
    commit_tma_stores();
    started();
    return broken;
  }

  // Loads the rows of earlier parts that a warp's rows are merged with to where store_fragments looks for them.
  template <typename T, int Panels> __device__ __forceinline__ void load_previous(const AttentionArgs& args, int head,
                                                                                  int batch, int q_tile,
                                                                                  uint8_t* tile) const {
    constexpr int kChunks = 8 * Panels,
                  kRows = 32 / kChunks;  // of 16 bytes in a row; a warp loads so many rows at once
    const int lane = threadIdx.x % 32, c = lane % kChunks, first = warp_rows() + lane / kChunks;
    const T* const out =
        static_cast<const T*>(args.out) + batch * out_stride[0] + (head - batch * args.heads) * out_stride[1] + c * 8;
    uint4 rows[kWarpRows / kRows] = {};
    const bool inside = c * 8 < args.head_dim;
#pragma unroll
    for (int i = 0; i < kWarpRows / kRows; ++i) {
      const int at = q_tile * 64 + first + i * kRows;
      if (inside && at < args.seq_q) rows[i] = *reinterpret_cast<const uint4*>(out + row_of(at) * out_stride[2]);
    }
#pragma unroll
    for (int i = 0; i < kWarpRows / kRows; ++i) {
      const int r = first + i * kRows;
      *reinterpret_cast<uint4*>(tile + c / 8 * kTileBytes + r * 128 + ((c % 8 ^ (r & 7)) << 4)) = rows[i];
    }
    __syncwarp();
  }

  // By each warp of a warpgroup when all items of its column are stored: computes those of its rows again that came out
  // as NaN. At the end, since a call between items would cost the consumers registers; so the rows are read back. Of a
  // list in pieces by the warp that has joined them.
  template <typename T, int Panels, int Tiles, typename Args>
  __device__ __forceinline__ void repair(const Args& args, int worker, int tile) const {
    const int lane = threadIdx.x % 32;
    if (lane == 0) await_tma_stores();
    __syncwarp();
    for (int round = 0;; ++round) {
      const int4 work = item(round, worker);
      if (work.x < 0) return;
      if (slot(work.w) >= 0 && !partials.is_joined<Panels, Tiles>(slot(work.w), tile)) continue;
      const int position = (Tiles * group(work.x) + tile) * 64 + warp_rows();
      const T* const out =
          static_cast<const T*>(args.out) + work.y / args.heads * out_stride[0] + work.y % args.heads * out_stride[1];
      unsigned broken = 0;
      for (int i = 0; i < kWarpRows && position + i < args.seq_q; ++i)
        for (int c = lane; c < args.head_dim; c += 32) {
          const float x = to_float(out[row_of(position + i) * out_stride[2] + c]);
          if (x != x) broken |= 1u << i;
        }
      attend_broken<T>(args, work.y, position, broken);
    }
  }
};

}  // namespace hopper
