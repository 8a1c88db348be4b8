// What the blocks of a cluster add to each other, and what the clusters of one item do.
#pragma once
#include "join.cuh"

namespace decode {
// Four columns of a query row: contexts and sum relative to `top`, in Units.
struct Part {
  float top, sum, context[4];
  __device__ __forceinline__ Part() : top(-INFINITY), sum(0.f), context{} {}

  // Adds another part, `own` of it being its sum; called in a fixed order.
  __device__ __forceinline__ void add(float weight, float own, const float4& more) {
    sum += weight * own;
    context[0] += weight * more.x, context[1] += weight * more.y;
    context[2] += weight * more.z, context[3] += weight * more.w;
  }
  // Makes it relative to another maximum, not below its own.
  template <typename Unit> __device__ __forceinline__ void rebase(float maximum) {
    const float weight = Unit::weight(top - (maximum == -INFINITY ? 0.f : maximum));
    top = maximum, sum *= weight;
#pragma unroll
    for (float& x : context) x *= weight;
  }
  __device__ __forceinline__ float base() const { return top == -INFINITY ? 0.f : top; }
};

// Adds the parts of a chunk that 2^log_lanes lanes side by side hold; called by whole warps.
__device__ __forceinline__ float highest(float top, int log_lanes) {
  for (int d = 1; d < 1 << log_lanes; d *= 2) top = fmaxf(top, __shfl_xor_sync(kAll, top, d));
  return top;
}
__device__ __forceinline__ void add_lanes(Part& part, int log_lanes) {
  for (int d = 1; d < 1 << log_lanes; d *= 2) {
    part.sum += __shfl_xor_sync(kAll, part.sum, d);
#pragma unroll
    for (float& x : part.context) x += __shfl_xor_sync(kAll, x, d);
  }
}

// What block 0 of a cluster has sent of a chunk.
struct Sent {
  const float2* statistics;
  const float4* context;
};

// Adds what 2^log_blocks blocks have sent of `chunks` chunks: sent(i) is block 0's part of chunk i, the parts of the
// next blocks lie `rows` statistics and `apart` contexts further on; store(i, part) takes the sum. A lane per part
// where the block has as many, else a thread per chunk. By all threads.
template <bool Biased, typename Find, typename Store>
__device__ __forceinline__ void add_received(int chunks, int log_blocks, int rows, int apart, const Find& sent,
                                             const Store& store) {
  using Unit = Units<Biased>;
  if (chunks << log_blocks <= kThreads) {
    const int i = threadIdx.x >> log_blocks, block = threadIdx.x & ((1 << log_blocks) - 1);
    const Sent from = sent(i < chunks ? i : 0);
    const float2 of = from.statistics[block * rows];
    Part part;
    part.top = highest(of.x, log_blocks);
    part.add(Unit::weight(of.x - part.base()), of.y, from.context[block * apart]);
    add_lanes(part, log_blocks);
    if (i < chunks && block == 0) store(i, part);
    return;
  }
  for (int i = threadIdx.x; i < chunks; i += kThreads) {
    const Sent from = sent(i);
    Part part;
#pragma unroll 4
    for (int block = 0; block < 1 << log_blocks; ++block) part.top = fmaxf(part.top, from.statistics[block * rows].x);
    const float base = part.base();
#pragma unroll 4
    for (int block = 0; block < 1 << log_blocks; ++block) {
      const float2 of = from.statistics[block * rows];
      part.add(Unit::weight(of.x - base), of.y, from.context[block * apart]);
    }
    store(i, part);
  }
}

// What the clusters of an item leave in the workspace: blocks of the same rank have the same chunks, so each rank has a
// ticket and a join of its own. A piece is a chunk of four columns, then top and sum of its row.
struct Joint {
  uint64_t* ticket;  // (items, blocks)
  float4* contexts;  // (items, blocks, clusters, most); here from the block's place on
  float2* statistics;
  int log_clusters, most;  // most: chunks of a block

  // place: of the block among `places` = items x blocks.
  __device__ Joint(float* base, int place, int64_t places, int log_clusters, int most)
      : ticket(ticket_of(base, place)),
        contexts(reinterpret_cast<float4*>(base + (places + 1) / 2 * 4) + (int64_t(place) * most << log_clusters)),
        statistics(reinterpret_cast<float2*>(base + (places + 1) / 2 * 4 + (places * most << log_clusters) * 4) +
                   (int64_t(place) * most << log_clusters)),
        log_clusters(log_clusters),
        most(most) {}
  static __device__ uint64_t* ticket_of(float* base, int place) { return reinterpret_cast<uint64_t*>(base) + place; }
  static int64_t floats(int64_t places, int clusters, int most) {
    return (places + 1) / 2 * 4 + places * clusters * most * 6;
  }
  __device__ __forceinline__ void put(int cluster, int i, const Part& part) const {
    contexts[cluster * most + i] = make_float4(part.context[0], part.context[1], part.context[2], part.context[3]);
    statistics[cluster * most + i] = make_float2(part.top, part.sum);
  }
  // The sum of each of the block's chunks, which has as many lanes as leave no thread idle. A lane has `ahead` pieces
  // under way at once: a second look at their statistics would cost as much as the first.
  template <bool Biased, typename Store> __device__ __forceinline__ void add(int chunks, const Store& store) const {
    using Unit = Units<Biased>;
    constexpr int ahead = 8;
    int log_lanes = 0;
    while (log_lanes < log_clusters && log_lanes < 5 && chunks << (log_lanes + 1) <= kThreads) ++log_lanes;
    const int each = 1 << (log_clusters - log_lanes), end = ((chunks << log_lanes) + 31) / 32 * 32;  // whole warps
    for (int thread = threadIdx.x; thread < end; thread += kThreads) {
      const int i = thread >> log_lanes, lane = thread & ((1 << log_lanes) - 1), pieces = i < chunks ? each : 0;
      Part part;
      for (int n = 0; n < pieces; n += ahead) {
        const int at = (lane * each + n) * most + i;
        float2 of[ahead];
        float4 context[ahead];
        float top = part.top;
#pragma unroll
        for (int k = 0; k < ahead; ++k) {
          of[k] = n + k < pieces ? statistics[at + k * most] : make_float2(-INFINITY, 0.f);
          context[k] = n + k < pieces ? contexts[at + k * most] : make_float4(0.f, 0.f, 0.f, 0.f);
        }
#pragma unroll
        for (int k = 0; k < ahead; ++k) top = fmaxf(top, of[k].x);
        part.rebase<Unit>(top);
#pragma unroll
        for (int k = 0; k < ahead; ++k) part.add(Unit::weight(of[k].x - part.base()), of[k].y, context[k]);
      }
      part.rebase<Unit>(highest(part.top, log_lanes));
      add_lanes(part, log_lanes);
      if (pieces && lane == 0) store(i, part);
    }
  }
};
}  // namespace decode
