// What a team of two warpgroups and its loading warp have in shared memory: rings of queries, keys, values and results,
// and a tile of ones.
#pragma once
#include "../common/hopper.cuh"
#include "../common/mma.cuh"
#include "../common/warpgroup.cuh"

namespace hopper {

template <int Panels> struct Shape {
  static constexpr int teams = Panels == 1 ? 2 : 1;
  static constexpr int threads = 128 * (2 * teams + 1);  // the last warpgroup loads
  // As many registers as the block has at its start: 65536 by threads, in eights.
  static constexpr int registers = 65536 / threads / 8 * 8, loader_registers = Panels == 1 ? 32 : 40;
  static constexpr int team_registers = (registers + (registers - loader_registers) / (2 * teams)) / 8 * 8;
  static constexpr int q_slots = 2, kv_slots = 4;  // items of queries, tiles of keys and of values in shared memory
  static constexpr int tile_bytes = Panels * kTileBytes;
  static constexpr int team_bytes = (2 * q_slots + 2 * kv_slots + 2) * tile_bytes;
  static constexpr int data_bytes = teams * team_bytes;
  static constexpr int ones_bytes =
      Panels == 1 ? 16 * 128 : 0;  // the tile of ones (hopper_step.cuh), behind the teams' data
  static constexpr int notes_bytes =
      2 * q_slots * 16 + kv_slots * 8 + (2 * q_slots + 4 * kv_slots + 2) * 8;  // of a team, behind all data: Team
  static constexpr int bytes = data_bytes + ones_bytes + teams * notes_bytes;
};

// A ring in shared memory, its slots a power of two: filled by the loading warp, freed by all eight warps of the team.
template <int Slots, int Bytes> struct Ring {
  static_assert((Slots & (Slots - 1)) == 0);
  uint8_t* first;
  uint64_t *full, *empty;

  __device__ __forceinline__ void init() const {
    for (int i = 0; i < Slots; ++i) barrier_init(full + i, 1), barrier_init(empty + i, 8);
  }
  // n counts fillings from 0 on.
  __device__ __forceinline__ uint8_t* at(uint32_t n) const { return first + n % Slots * Bytes; }
  __device__ __forceinline__ void await_full(uint32_t n) const { barrier_wait(full + n % Slots, n / Slots % 2); }
  __device__ __forceinline__ void await_empty(uint32_t n) const {
    barrier_wait(empty + n % Slots, (n / Slots + 1) % 2);
  }
  __device__ __forceinline__ void release(uint32_t n) const {  // by a whole warp, which waited until it was full
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty + n % Slots, 1);
  }
};

template <typename S> struct Team {
  Ring<S::q_slots, 2 * S::tile_bytes> q;
  Ring<S::kv_slots, S::tile_bytes> k, v;
  Ring<1, 2 * S::tile_bytes> out;  // results, and what an earlier part left; a warp frees its rows
  const uint8_t* ones;             // of all teams
  int4* items;                     // of the queries' slots: what the round is of (hopper_load.cuh)
  int4* needs;  // of the queries' slots, for each query tile: the steps that it needs and those whose tile is partial,
                // the first highest
  int2* codes;  // of the keys' slots

  __device__ __forceinline__ Team(uint8_t* shared, int number) {
    uint8_t* const data = shared + number * S::team_bytes;
    ones = shared + S::data_bytes;
    items = reinterpret_cast<int4*>(shared + S::data_bytes + S::ones_bytes + number * S::notes_bytes);
    needs = items + S::q_slots;
    codes = reinterpret_cast<int2*>(needs + S::q_slots);
    auto* const barriers = reinterpret_cast<uint64_t*>(codes + S::kv_slots);
    q = {data, barriers, barriers + S::q_slots};
    k = {data + 2 * S::q_slots * S::tile_bytes, q.empty + S::q_slots, q.empty + S::q_slots + S::kv_slots};
    v = {k.first + S::kv_slots * S::tile_bytes, k.empty + S::kv_slots, k.empty + 2 * S::kv_slots};
    out = {v.first + S::kv_slots * S::tile_bytes, v.empty + S::kv_slots, v.empty + S::kv_slots + 1};
  }

  __device__ __forceinline__ void init() const {
    q.init();
    k.init();
    v.init();
    out.init();
  }
};

// By all threads of the block, before its first barrier.
template <typename T, typename S> __device__ __forceinline__ void fill_ones(uint8_t* shared) {
  if (threadIdx.x < S::ones_bytes / 16) {
    const uint32_t two = tensor_core::pack<T>(1.f, 1.f);
    reinterpret_cast<uint4*>(shared + S::data_bytes)[threadIdx.x] = make_uint4(two, two, two, two);
    fence_async_proxy();
  }
}

}  // namespace hopper
