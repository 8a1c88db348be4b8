// Partial results of split tile lists: accumulators, sums and references of 128 threads for each query tile of a group.
//
// Each warp leaves its own rows and arrives at their ticket (../common/tickets.cuh). The last of a list's warps to
// arrive joins them: nobody waits for another, and no other kernel is launched. Why it sees what the others left:
// join.cuh of
// ../attention_decode, with __syncwarp() in place of __syncthreads().
#pragma once
#include <stdint.h>

#include "../common/exp2.cuh"
#include "../common/tickets.cuh"
#include "../common/warpgroup.cuh"

namespace hopper {

struct Partials {
  float* slots;
  uint64_t* tickets;
  uint64_t tag;        // of the tickets; 0: there are none
  const int4* pieces;  // of each slot (parts.h)

  // A thread's share of a partial result of query tile `tile` of its group.
  template <int Panels, int Tiles> __device__ __forceinline__ float* at(int slot, int tile) const {
    return slots + (int64_t(slot) * Tiles + tile) * kTile<Panels> + threadIdx.x % 128;
  }

  // By a lane of the warp that will arrive with that piece.
  template <int Tiles> __device__ __forceinline__ void begin(int slot, int tile) const {
    begin_ticket(ticket<Tiles>(pieces[slot], tile), tag);
  }

  // Leaves a warp's rows, of type Rows (hopper_step.cuh). Whether that was the last piece of the list: rows are the
  // whole list's then. factor: of references, to powers of two.
  template <int Panels, int Tiles, typename State>
  __device__ __forceinline__ bool complete(int slot, int tile, float factor, State& rows) const {
    const int4 piece = pieces[slot];
    store<Panels, Tiles>(slot, tile, rows);
    int last = 0;
    __syncwarp();
    if (threadIdx.x % 32 == 0) last = arrives_last(ticket<Tiles>(piece, tile), unsigned(piece.y));
    last = uniform(last);
    __syncwarp();  // orders the other lanes' loads too
    if (!last) return false;
    join<Panels, Tiles>(piece.x, piece.y, tile, factor, rows);
    at<Panels, Tiles>(slot, tile)[32 * Panels * 128] = kJoined;
    return true;
  }

  // Whether this thread's warp was the last of its list's with that piece.
  template <int Panels, int Tiles> __device__ __forceinline__ bool is_joined(int slot, int tile) const {
    return at<Panels, Tiles>(slot, tile)[32 * Panels * 128] == kJoined;
  }

 private:
  template <int Tiles> __device__ __forceinline__ uint64_t* ticket(int4 piece, int tile) const {
    return tickets + (piece.x * Tiles + tile) * 4 + threadIdx.x / 32 % 4;
  }

  template <int Panels> static constexpr int kTile = (32 * Panels + 4) * 128;  // floats
  static constexpr float kJoined = -1.f;                                       // in place of a sum

  template <int Panels, int Tiles, typename State>
  __device__ __forceinline__ void store(int slot, int tile, const State& rows) const {
    float* const to = at<Panels, Tiles>(slot, tile);
#pragma unroll
    for (int i = 0; i < 32 * Panels; ++i) to[i * 128] = rows.o[i];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      to[(32 * Panels + r) * 128] = rows.sum(r);
      to[(32 * Panels + 2 + r) * 128] = rows.sum(r) > 0.f ? rows.reference[r] : -INFINITY;
    }
  }

  // In the order of the slots, whoever does it, so that a call repeats bit for bit.
  template <int Panels, int Tiles, typename State>
  __device__ __forceinline__ void join(int first, int count, int tile, float factor, State& rows) const {
    constexpr int kChunk = 16;  // values loaded together
    const float* from = at<Panels, Tiles>(first, tile);
    float top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
#pragma unroll
    for (int i = 0; i < 32 * Panels; ++i) rows.o[i] = 0.f;
#pragma unroll 1
    for (int p = 0; p < count; ++p, from += Tiles * kTile<Panels>) {
      float mine[2], theirs[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float other = from[(32 * Panels + 2 + r) * 128], both = fmaxf(top[r], other);
        const float shift = both == -INFINITY ? 0.f : both;  // no key so far
        mine[r] = exp2_approx((top[r] - shift) * factor);
        theirs[r] = exp2_approx((other - shift) * factor);
        top[r] = both;
        sum[r] = sum[r] * mine[r] + from[(32 * Panels + r) * 128] * theirs[r];
      }
#pragma unroll
      for (int c = 0; c < 32 * Panels / kChunk; ++c) {
        float values[kChunk];
#pragma unroll
        for (int i = 0; i < kChunk; ++i) values[i] = from[(kChunk * c + i) * 128];
#pragma unroll
        for (int i = 0; i < kChunk; ++i) {
          float& to = rows.o[kChunk * c + i];
          to = to * mine[i / 2 % 2] + values[i] * theirs[i / 2 % 2];
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) rows.sum(r) = sum[r], rows.reference[r] = top[r];
  }
};

}  // namespace hopper
