// Shared memory of a team of consumer warpgroups, one for each query tile of a group (parts.h), and its producer warps:
// ring buffers of queries, keys, values, results and tiles of a bias, and a tile of ones.
#pragma once
#include "../common/hopper.cuh"
#include "../common/mma.cuh"
#include "../common/warpgroup.cuh"
#include "parts.h"

namespace hopper {

// What the producer says of something for each query tile of a group.
template <typename T, int Tiles> struct alignas(Tiles * sizeof(T) <= 8 ? 8 : 16) ForEach {
  T of[Tiles];
};

// A bias of the scores: none; read element by element; or by tiles that a producer warp of its own loads.
enum class ItemBias { none, elements, tiles };

// What the producer says of a KV tile where there is a bias: its codes, index and residue of its first key.
template <int Tiles> struct alignas(16) PlacedCodes {
  int of[Tiles];
  int2 place;
};

// Tiles: query tiles of a group.
template <int Panels, int Tiles, ItemBias Bias = ItemBias::none> struct Shape {
  static_assert(Tiles == 2 || (Tiles == 3 && Bias == ItemBias::none));
  static constexpr bool biased = Bias != ItemBias::none, bias_tiles = Bias == ItemBias::tiles;
  static constexpr int tiles = Tiles, teams = Panels == 1 && Tiles == 2 ? 2 : 1;  // of a group; of a block
  static constexpr int threads = 128 * (tiles * teams + 1);                       // the last warpgroup is the producer
  // Per thread: 65536 divided among the threads of the block, in multiples of 8.
  static constexpr int registers = 65536 / threads / 8 * 8, producer_registers = Tiles == 3    ? 56
                                                                                 : Panels == 1 ? 32
                                                                                               : 40;
  static constexpr int consumer_registers = (registers + (registers - producer_registers) / (tiles * teams)) / 8 * 8;
  static constexpr int q_stages = 2, kv_stages = 4;  // pipeline stages: groups of query tiles; KV tiles
  // Whether results have shared memory of their own; else they take the place of the item's queries.
  static constexpr bool own_results = Tiles == 2 && !biased;
  static constexpr int bias_stages = bias_tiles ? Panels : 0;  // of each query tile: as many as results leave room for
  static constexpr int tile_bytes = Panels * kTileBytes, group_bytes = tiles * tile_bytes;
  static constexpr int team_bytes =
      (q_stages + (own_results || biased)) * group_bytes + 2 * kv_stages * tile_bytes;  // the bias in place of results
  static_assert(bias_stages * tiles * kTileBytes <= group_bytes);
  static constexpr int data_bytes = teams * team_bytes;
  static constexpr int ones_bytes =
      Panels == 1 ? 16 * 128 : 0;  // tile of ones (hopper_step.cuh), behind the teams' data
  using Codes = std::conditional_t<biased, PlacedCodes<tiles>, ForEach<int, tiles>>;
  using LiveSteps = ForEach<int2, tiles>;  // bit masks of live steps and of partial ones, first step in the top bit
  static constexpr int metadata_bytes =
      q_stages * (16 + sizeof(LiveSteps)) + kv_stages * sizeof(Codes) +
      (2 * q_stages + 4 * kv_stages + 2 + 2 * tiles * bias_stages) *
          8;  // per team, after all data: the rest of SharedStorage, barriers of the bias
  static constexpr int bytes = data_bytes + ones_bytes + teams * metadata_bytes;
  static_assert(bytes <= 227 * 1024);
};

// A ring buffer of pipeline stages (a power of two): filled by the producer warp, released by the consumer warps.
template <int Stages, int Bytes, int Warps> struct Ring {
  static_assert((Stages & (Stages - 1)) == 0);
  uint8_t* first;
  uint64_t *full, *empty;

  __device__ __forceinline__ void init() const {
    for (int i = 0; i < Stages; ++i) barrier_init(full + i, 1), barrier_init(empty + i, Warps);
  }
  // n: number of the fill, from 0 on.
  __device__ __forceinline__ uint8_t* at(uint32_t n) const { return first + n % Stages * Bytes; }
  __device__ __forceinline__ void await_full(uint32_t n) const { barrier_wait(full + n % Stages, n / Stages % 2); }
  __device__ __forceinline__ void await_empty(uint32_t n) const {
    barrier_wait(empty + n % Stages, (n / Stages + 1) % 2);
  }
  __device__ __forceinline__ void release(uint32_t n) const {  // by a whole warp, after await_full(n)
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty + n % Stages, 1);
  }
};

template <typename S> struct SharedStorage {
  static constexpr int warps = 4 * S::tiles;
  Ring<S::q_stages, S::group_bytes, warps> q;
  Ring<S::kv_stages, S::tile_bytes, warps> k, v;
  // With own_results: results, and those of earlier parts; each warp releases its rows.
  Ring<1, S::group_bytes, warps> out;
  const uint8_t* ones;                // shared by all teams
  int4* items;                        // per query stage: the round's work item (hopper_producer.cuh)
  typename S::LiveSteps* live_steps;  // per query stage
  typename S::Codes* tile_codes;      // per key stage

  __device__ __forceinline__ SharedStorage(uint8_t* shared, int number) {
    uint8_t* const data = shared + number * S::team_bytes;
    ones = shared + S::data_bytes;
    items = reinterpret_cast<int4*>(shared + S::data_bytes + S::ones_bytes + number * S::metadata_bytes);
    live_steps = reinterpret_cast<typename S::LiveSteps*>(items + S::q_stages);
    tile_codes = reinterpret_cast<typename S::Codes*>(live_steps + S::q_stages);
    auto* const barriers = reinterpret_cast<uint64_t*>(tile_codes + S::kv_stages);
    q = {data, barriers, barriers + S::q_stages};
    k = {data + S::q_stages * S::group_bytes, q.empty + S::q_stages, q.empty + S::q_stages + S::kv_stages};
    v = {k.first + S::kv_stages * S::tile_bytes, k.empty + S::kv_stages, k.empty + 2 * S::kv_stages};
    out = {v.first + S::kv_stages * S::tile_bytes, v.empty + S::kv_stages, v.empty + S::kv_stages + 1};
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
