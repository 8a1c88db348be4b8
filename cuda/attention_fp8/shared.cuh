// Shared memory of a block: rings of query tiles, of keys and of values, barriers, and what the producer says of items
// and steps.
#pragma once
#include "../common/hopper_fp8.cuh"
#include "../common/warpgroup.cuh"
#include "tiles.h"

namespace fp8 {

// Codes of a tile for a query tile, in addition to those of attention.cuh (-1 all live, else a bitmap).
constexpr int kDead = -2, kByIndex = -3;  // kByIndex: live up to the diagonal or the last key

// D columns, WG consumer warpgroups of 64 rows, and the producer, which is the last.
template <int D_> struct Shape {
  static constexpr int D = D_, WG = 3, threads = 128 * (WG + 1);
  // Per thread; a block has 65536.
  static constexpr int producer_registers = 32, consumer_registers = 160;
  static constexpr int q_stages = D == 64 ? 2 : 1, k_stages = D == 64 ? 8 : 6, v_stages = D == 64 ? 8 : 5;
  static constexpr int tile_bytes = 64 * D;
  static constexpr int ones_bytes = 8 * 64;                    // eight columns of ones behind those of a tile of V,
  static constexpr int value_bytes = tile_bytes + ones_bytes;  // so that P V has the sums of the rows
  static constexpr int query_bytes = WG * tile_bytes;
  static constexpr int kept_bytes = WG * 128 * 4 * (D / 2 + 4);  // sums of earlier steps (step.cuh)
  static constexpr int data_bytes =
      q_stages * query_bytes + k_stages * tile_bytes + v_stages * value_bytes + kept_bytes;
  static constexpr int bytes = 1024 + data_bytes + 1024;
};

// What the producer says of a round (an item of work) with its queries; head -1 is the end.
struct alignas(16) Round {
  int head, q_block, steps;  // steps: whether there are any
};
// Of a step, with its keys: their tile, whether it is the item's last, and for each warpgroup the code of the tile
// and what its scores are multiplied with.
struct alignas(8) Codes {
  int code;
  float factor;
};
template <int WG> struct alignas(16) Step {
  int tile, last;
  Codes codes[WG];
};

template <int Stages, int Bytes, int Warps> struct Ring {
  uint8_t* first;
  uint64_t *full, *empty;
  __device__ __forceinline__ void init() const {
    for (int i = 0; i < Stages; ++i) hopper::barrier_init(full + i, 1), hopper::barrier_init(empty + i, Warps);
  }
  // n: number of the fill, from 0 on.
  __device__ __forceinline__ uint8_t* at(uint32_t n) const { return first + n % Stages * Bytes; }
  __device__ __forceinline__ uint64_t* full_of(uint32_t n) const { return full + n % Stages; }
  __device__ __forceinline__ void await_full(uint32_t n) const {
    hopper::barrier_wait(full + n % Stages, n / Stages % 2);
  }
  __device__ __forceinline__ void await_empty(uint32_t n) const {
    hopper::barrier_wait(empty + n % Stages, (n / Stages + 1) % 2);
  }
  __device__ __forceinline__ void release(uint32_t n) const {  // by a whole warp
    __syncwarp();
    if (threadIdx.x % 32 == 0) hopper::barrier_arrive(empty + n % Stages, 1);
  }
};

template <typename S> struct Memory {
  static constexpr int warps = 4 * S::WG;
  Ring<S::q_stages, S::query_bytes, warps> q;
  Ring<S::k_stages, S::tile_bytes, warps> k;
  Ring<S::v_stages, S::value_bytes, warps> v;
  Ring<2, 16, 1> items;  // from the producer warp that draws them to the other; -1 is the end
  float4* kept;
  Round* rounds;       // per stage of q
  Step<S::WG>* steps;  // per stage of k

  __device__ __forceinline__ explicit Memory(uint8_t* raw) {
    uint8_t* const data = raw + (1024 - hopper::shared_address(raw) % 1024) % 1024;
    auto* const barriers = reinterpret_cast<uint64_t*>(data + S::data_bytes);
    q = {data, barriers, barriers + S::q_stages};
    k = {data + S::q_stages * S::query_bytes, q.empty + S::q_stages, q.empty + S::q_stages + S::k_stages};
    v = {k.first + S::k_stages * S::tile_bytes, k.empty + S::k_stages, k.empty + S::k_stages + S::v_stages};
    kept = reinterpret_cast<float4*>(v.first + S::v_stages * S::value_bytes);
    items = {reinterpret_cast<uint8_t*>(v.empty + S::v_stages + 4), v.empty + S::v_stages, v.empty + S::v_stages + 2};
    rounds = reinterpret_cast<Round*>(items.first + 32);
    steps = reinterpret_cast<Step<S::WG>*>(rounds + S::q_stages);
    static_assert(2 * (S::q_stages + S::k_stages + S::v_stages + 2) * 8 + 32 + S::q_stages * 16 +
                      S::k_stages * sizeof(Step<S::WG>) <=
                  1024);
  }
  // By all threads of the block, before its first barrier.
  __device__ __forceinline__ void init() const {
    if (threadIdx.x == 0) {
      q.init(), k.init(), v.init(), items.init();
      hopper::barrier_init_fence();
    }
    constexpr uint32_t kOnes = 0x38383838;
    constexpr int words = S::ones_bytes / 16;  // of 16 bytes
    for (int i = threadIdx.x; i < S::v_stages * words; i += S::threads)
      *reinterpret_cast<uint4*>(v.first + i / words * S::value_bytes + S::tile_bytes + i % words * 16) =
          make_uint4(kOnes, kOnes, kOnes, kOnes);
    hopper::fence_async_proxy();
  }
};

}  // namespace fp8
