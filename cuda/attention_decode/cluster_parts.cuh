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
  __device__ __forceinline__ float base() const { return top == -INFINITY ? 0.f : top; }
};

// What the clusters of an item leave in the workspace: blocks of the same rank have the same chunks, so each rank has a
// ticket and a join of its own. A piece is a chunk of four columns, then top and sum of its row.
struct Joint {
  uint64_t* tickets;  // (items, blocks)
  float4* contexts;   // (items, blocks, clusters, most)
  float2* statistics;
  int most;  // chunks of a block

  __host__ __device__ Joint(float* base, int64_t places, int clusters, int most)
      : tickets(reinterpret_cast<uint64_t*>(base)),
        contexts(reinterpret_cast<float4*>(base + (places + 1) / 2 * 4)),
        statistics(reinterpret_cast<float2*>(contexts + places * clusters * most)),
        most(most) {}
  static int64_t floats(int64_t places, int clusters, int most) {
    return (places + 1) / 2 * 4 + places * clusters * most * 6;
  }
  __device__ void put(int64_t at, const Part& part) const {
    contexts[at] = make_float4(part.context[0], part.context[1], part.context[2], part.context[3]);
    statistics[at] = make_float2(part.top, part.sum);
  }
  // The sum of `clusters` pieces that lie `most` apart.
  template <bool Biased> __device__ Part sum(int64_t at, int clusters) const {
    Part part;
    for (int n = 0; n < clusters; ++n) part.top = fmaxf(part.top, statistics[at + n * most].x);
    const float base = part.base();
    for (int n = 0; n < clusters; ++n) {
      const float2 of = statistics[at + n * most];
      part.add(Units<Biased>::weight(of.x - base), of.y, contexts[at + n * most]);
    }
    return part;
  }
};
}  // namespace decode
