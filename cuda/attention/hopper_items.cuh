// Items of work (parts.h) on Hopper: how the rows of one get to global memory, alone, in pieces, or merged with what
// earlier parts left.
//
// Results have shared memory of their own and go from there by TMA behind the next item's work; what an earlier part
// left of the same rows comes by TMA too, ahead like queries and keys (hopper_load.cuh).
#pragma once
#include "../common/launch.cuh"
#include "../common/warpgroup.cuh"
#include "hopper_step.cuh"
#include "parts.h"

namespace hopper {

constexpr int kWarpRows = 16;  // of a query tile, which a warp has

struct Items {
  const int4* items;
  const int4* joins;
  const int4* schedule;
  float* slots;
  float* lse;  // of every row, in powers of two; nullptr where the mask is one part
  int64_t out_stride[3];
  int rounds, teams;
  int q_modulus, q_length;
  bool later, more;  // merges with rows that are there; leaves rows for a part to come

  __device__ __forceinline__ int4 item(int round, int team) const {
    return round < rounds && team < teams ? items[int64_t(round) * teams + team] : make_int4(-1, 0, 0, 0);
  }
  static __device__ __forceinline__ int pair(int x) { return x % kItemPairs; }
  static __device__ __forceinline__ uint32_t kept(int x) { return uint32_t(x) / kItemPairs; }
  static __device__ __forceinline__ uint32_t steps(int w) { return uint32_t(w) % kItemSteps; }
  static __device__ __forceinline__ int slot(int w) { return int(uint32_t(w) / kItemSteps) - 1; }

  // What a thread of a warpgroup has of a partial result.
  template <int Panels> __device__ __forceinline__ float* slot_at(int slot, int half, int thread) const {
    return slots + (int64_t(slot) * 2 + half) * ((32 * Panels + 4) * 128) + thread;
  }
  template <typename T, int Panels>
  __device__ __forceinline__ void leave(int slot, int half, const Rows<T, Panels>& rows) const {
    float* const to = slot_at<Panels>(slot, half, threadIdx.x % 128);
#pragma unroll
    for (int i = 0; i < 32 * Panels; ++i) to[i * 128] = rows.o[i];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      to[(32 * Panels + r) * 128] = rows.sum(r);
      to[(32 * Panels + 2 + r) * 128] = rows.sum(r) > 0.f ? rows.reference[r] : -INFINITY;
    }
  }

  // Where a place lies in the order of residues: index and residue.
  __device__ __forceinline__ int2 index_of(int place) const {
    if (q_modulus == 1) return make_int2(place, 0);
    const uint32_t residue = uint32_t(place) / uint32_t(q_length);
    return make_int2(place - int(residue) * q_length, int(residue));
  }
  __device__ __forceinline__ int row_of(int place) const {
    const int2 at = index_of(place);
    return at.x * q_modulus + at.y;
  }
  // Of a warpgroup's query tile the first row that this warp has.
  static __device__ __forceinline__ int warp_rows() { return kWarpRows * (threadIdx.x / 32 % 4); }
  // The first row that a thread of a warp has; the second is 8 behind it.
  static __device__ __forceinline__ int first_row(int warp_rows) { return warp_rows + threadIdx.x % 32 / 4; }

  // The log-sum-exp of this thread's two rows by earlier parts, -inf where there is no such row; place: the first of a
  // warp's rows.
  __device__ __forceinline__ void known(const AttentionArgs& args, int head, int place, float (&before)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int at = first_row(place) + 8 * r;
      before[r] = later && at < args.seq_q ? lse[int64_t(head) * args.seq_q + row_of(at)] : -INFINITY;
    }
  }

  // What this part's rows and those that are there already are to be multiplied by; notes what parts to come have to
  // know.
  __device__ __forceinline__ void shares(const AttentionArgs& args, int head, int place, const float (&sum)[2],
                                         const float (&reference)[2], const float (&before)[2], float (&mine)[2],
                                         float (&theirs)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      mine[r] = sum[r] > 0.f ? __fdividef(1.f, sum[r]) : 0.f;
      theirs[r] = 0.f;
      if (!lse) continue;
      float now = sum[r] > 0.f ? reference[r] + log2f(sum[r]) : -INFINITY;
      if (later) {
        const float top = fmaxf(before[r], now), shift = top == -INFINITY ? 0.f : top;
        const float old_share = exp2_approx(before[r] - shift), new_share = exp2_approx(now - shift),
                    all = old_share + new_share;
        theirs[r] = all > 0.f ? old_share / all : 0.f;
        mine[r] *= all > 0.f ? new_share / all : 0.f;
        now = all > 0.f ? shift + log2f(all) : -INFINITY;
      }
      const int at = first_row(place) + 8 * r;
      __syncwarp();  // all lanes of the row have read what it was
      if (more && at < args.seq_q && threadIdx.x % 4 == 0) lse[int64_t(head) * args.seq_q + row_of(at)] = now;
    }
  }

  // A warp's rows of the result, from this one of the tile on, so many times 16 columns from those on, to the tile,
  // where those of earlier parts may be.
  template <bool Later, typename T, int Sixteens>
  __device__ __forceinline__ void store_fragments(uint8_t* tile, int first_row, int first_sixteen, const float* o,
                                                  const float (&mine)[2], const float (&theirs)[2]) const {
    // Lane i points at row i % 8 of matrix i / 8: of 16 rows and 16 columns rows first, so that matrix m holds register
    // m of each thread.
    const int lane = threadIdx.x % 32, row = first_row + lane % 16;
    const uint32_t first = shared_address(tile) + row * 128 + ((lane / 16 ^ lane % 8) << 4);
#pragma unroll
    for (int n = 0; n < Sixteens; ++n) {
      const int j = first_sixteen + n;
      const uint32_t at = (first ^ (j % 4 << 5)) + j / 4 * kTileBytes;
      uint32_t there[4], out[4];
      if constexpr (Later) tensor_core::ldmatrix_x4(there, at);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = i % 2, from = 8 * n + 4 * (i / 2) + 2 * r;
        float x[2] = {o[from] * mine[r], o[from + 1] * mine[r]};
        if constexpr (Later) {
          T two[2];
          memcpy(two, &there[i], 4);
          x[0] += to_float(two[0]) * theirs[r];
          x[1] += to_float(two[1]) * theirs[r];
        }
        out[i] = tensor_core::pack<T>(x[0], x[1]);
      }
      stmatrix_x4(at, out);
    }
  }

  // A warp's rows of the result to out, by a block of four warps that have a quarter of the columns each; o: this
  // thread's of these; head: of all batch entries; place: the first of the rows; tile: shared memory of the block that
  // nobody reads any more.
  template <typename T, int Panels>
  __device__ __forceinline__ void store(const AttentionArgs& args, int head, int place, uint8_t* tile, const float* o,
                                        const float (&sum)[2], const float (&reference)[2]) const {
    float before[2], mine[2], theirs[2];
    known(args, head, place, before);
    T* const out = static_cast<T*>(args.out) + head / args.heads * out_stride[0] + head % args.heads * out_stride[1];
    // Through shared memory, so that rows are read and written in whole pieces of 16 bytes.
    auto each_piece = [&](auto visit) {
#pragma unroll
      for (int i = 0; i < Panels; ++i) {
        const int n = i * 128 + threadIdx.x, c = n % (8 * Panels), r = n / (8 * Panels);
        if (place + r < args.seq_q && c * 8 < args.head_dim)
          visit(*reinterpret_cast<uint4*>(tile + c / 8 * kTileBytes + r * 128 + ((c % 8 ^ (r & 7)) << 4)),
                *reinterpret_cast<uint4*>(out + row_of(place + r) * out_stride[2] + c * 8));
      }
    };
    if (later) each_piece([](uint4& here, const uint4& there) { here = there; });
    __syncthreads();  // all have read what earlier parts left
    shares(args, head, place, sum, reference, before, mine, theirs);
    if (later)
      store_fragments<true, T, Panels>(tile, 0, threadIdx.x / 32 * Panels, o, mine, theirs);
    else
      store_fragments<false, T, Panels>(tile, 0, threadIdx.x / 32 * Panels, o, mine, theirs);
    __syncthreads();
    each_piece([](const uint4& here, uint4& there) { there = here; });
  }

  // A warpgroup's query tile to out by TMA, each warp its own rows, so that none waits for another; n counts the
  // fillings of the ring out, which in a later part the loading warp makes; before: known().
  template <typename T, int Panels, typename Ring>
  __device__ __forceinline__ void stage(const AttentionArgs& args, const CUtensorMap* out_map, int head, int batch,
                                        int q_tile, const Ring& out, uint32_t n, const Rows<T, Panels>& rows,
                                        const float (&before)[2]) const {
    uint8_t* const tile = out.at(n) + q_tile % 2 * (Panels * kTileBytes);
    const bool leader = threadIdx.x % 32 == 0;
    const int first = warp_rows(), place = q_tile * 64 + first;
    const float sum[2] = {rows.sum(0), rows.sum(1)};
    float mine[2], theirs[2];
    shares(args, head, place, sum, rows.reference, before, mine, theirs);
    if (later) {
      out.await_full(n);
    } else {
      if (leader) await_tma_reads<0>();  // the result before this one has left
      __syncwarp();
    }
    if (later)
      store_fragments<true, T, 4 * Panels>(tile, first, 0, rows.o, mine, theirs);
    else
      store_fragments<false, T, 4 * Panels>(tile, first, 0, rows.o, mine, theirs);
    fence_async_proxy();
    __syncwarp();
    if (!leader) return;
    const int2 at = index_of(place);
    for (int p = 0; p < Panels; ++p)
      store_tile(tile + p * kTileBytes + first * 128, out_map, 64 * p, at.x, at.y, head - batch * args.heads, batch);
    commit_tma_stores();
    if (!later) return;
    await_tma_reads<0>();
    barrier_arrive(out.empty, 1);
  }
};

}  // namespace hopper
