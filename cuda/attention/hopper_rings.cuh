// Shared memory of a block of v4_scheduled: query tiles, a ring of keys and one of values, a tile of ones, the
// bias, barriers and the schedule. A slot of a ring holds a step, two KV tiles: panel by panel 128 rows.
#pragma once
#include "../common/hopper.cuh"
#include "../common/mma.cuh"
#include "../common/warpgroup.cuh"
#include "hopper_bias.cuh"

namespace hopper {

// Panels of 64 columns make up a row of head_dim. Split: all WG warpgroups have the same query tile. Pieces: of a
// bias that is fetched ahead (hopper_bias.cuh).
template <int Panels, int WG, bool Split, bool Pieces = false> struct ScheduledShape {
  static constexpr int panels = Panels;
  static constexpr bool ones = Panels == 1;
  static constexpr bool overlap = Panels == 2 && !Split;
  static constexpr int q_tiles = Split ? 1 : WG;
  static constexpr int blocks_per_sm = Panels == 1 && WG == 2 ? 2 : 1;
  // Steps of keys and of values in shared memory; a multiple of WG where warpgroups take turns.
  static constexpr int k_slots = WG == 4 ? 4 : overlap ? 3 : 2;
  static constexpr int v_slots = WG == 4 ? 4 : 2;
  static constexpr int accumulators = ones ? 36 : 32 * Panels;
  static constexpr int q_bytes = q_tiles * Panels * kTileBytes;
  static constexpr int slot_bytes = 2 * Panels * kTileBytes;
  static constexpr int ones_bytes = ones ? 16 * 128 : 0;
  // Keys of a step whose bias is in shared memory: all where registers have no place for it, but for what two blocks of
  // two query tiles have no place for there either.
  static constexpr int parked = !Pieces || Panels > 1 ? 0 : Split ? 128 : 96;
  static constexpr int bias_bytes = 4 * WG * kParkedBytes<parked>;
  static int shared_bytes(int kv_tiles) {
    return 1024 + q_bytes + (k_slots + v_slots) * slot_bytes + ones_bytes + bias_bytes + 256 +
           32 * ((kv_tiles + 1) / 2 + 3);
  }
};

// By one thread, before the block's first barrier. full and free: one barrier for each slot of keys, then of values.
template <typename S> __device__ __forceinline__ void init_block(uint64_t* full_q, uint64_t* full, uint64_t* free,
                                                                 const CUtensorMap* q, const CUtensorMap* k,
                                                                 const CUtensorMap* v) {
  for (int s = 0; s < S::k_slots + S::v_slots; ++s) {
    barrier_init(full + s, 1);
    barrier_init(free + s, 4 * S::q_tiles);
  }
  barrier_init(full_q, 1);
  barrier_init_fence();
  prefetch_map(q);
  prefetch_map(k);
  prefetch_map(v);
}

// By one thread: the block's query tiles from `tile` on.
template <typename S> __device__ __forceinline__ void load_queries(uint8_t* to, const CUtensorMap* map, uint64_t* full,
                                                                   int tile, int head, int batch) {
  barrier_expect(full, S::q_bytes);
  for (int w = 0; w < S::q_tiles; ++w)
    for (int p = 0; p < S::panels; ++p)
      load_tile(to + (w * S::panels + p) * kTileBytes, map, full, 64 * p, (tile + w) * 64, head, batch);
}

// By all threads of the block, before its first barrier.
template <typename T> __device__ __forceinline__ void fill_ones(uint8_t* ones, int bytes) {
  if (threadIdx.x < bytes / 16) {
    const uint32_t two = tensor_core::pack<T>(1.f, 1.f);
    reinterpret_cast<uint4*>(ones)[threadIdx.x] = make_uint4(two, two, two, two);
  }
  fence_async_proxy();
}

// By one thread: a step's two KV tiles (hopper_schedule.cuh) to slot s of a ring.
template <typename S> __device__ __forceinline__ void load_step(int4* const& schedule, int step, const CUtensorMap* map,
                                                                uint8_t* const& ring, uint64_t* const& full, int s,
                                                                const int& head, const int& batch) {
  const int4 tiles = schedule[2 * step + 1];
  barrier_expect(full + s, S::slot_bytes);
  uint8_t* to = ring + s * S::slot_bytes;
  for (int p = 0; p < S::panels; ++p) {
    load_tile(to + 2 * p * kTileBytes, map, full + s, 64 * p, tiles.x * 64, head, batch);
    load_tile(to + (2 * p + 1) * kTileBytes, map, full + s, 64 * p, tiles.y * 64, head, batch);
  }
}

// By one thread: as many of the block's steps, origin ... last - 1, as there are slots.
template <typename S, typename LoadK, typename LoadV>
__device__ __forceinline__ void fill_rings(int origin, int last, const LoadK& load_k, const LoadV& load_v) {
  for (int step = origin; step < origin + S::k_slots && step < last; ++step) {
    load_k(step);
    if (step < origin + S::v_slots) load_v(step);
  }
}

// By a whole warp that is done with a step's slot: the last warp refills it.
template <int Slots, typename Load>
__device__ __forceinline__ void release_step(int step, const int& origin, const int& last, const int& lane,
                                             uint64_t* const& free, const Load& load) {
  __syncwarp();
  if (lane == 0 && step + Slots < last && barrier_arrive(free + (step - origin) % Slots, 1) == 1) load(step + Slots);
}

}  // namespace hopper
