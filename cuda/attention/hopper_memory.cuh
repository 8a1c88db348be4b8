// Shared memory of a forward kernel's block: a query tile per warpgroup, and a ring of stages, each a KV tile of keys
// and of values.
//
// There is no producer warp: the last warp to release a stage refills it, so nobody waits for an empty stage.
#pragma once
#include "../common/hopper.cuh"
#include "../common/warpgroup.cuh"

namespace hopper {

// Panels of 64 columns make up a row of head_dim; stages and resident blocks are what fits registers and shared memory.
template <int Panels, int WG, bool Bias = false> struct ForwardShape {
  static constexpr int panels = Panels, warpgroups = WG;
  static constexpr int stages = Panels == 1 ? (WG == 1 ? 3 : 4) : Panels == 2 ? (WG == 1 ? 2 : 3) : 2;
  static constexpr int blocks_per_sm = Panels == 1 ? (WG == 2 ? 2 : Bias ? 3 : 4) : Panels == 2 && WG == 1 ? 2 : 1;
  // Q in registers halves the shared-memory reads of S = Q K^T. Only where ptxas 13.0 gets it right: at one panel it
  // gives the fragments of Q and of P the same registers, without a reload. Three and four panels have no registers
  // left for it.
  static constexpr bool q_in_registers = Panels == 2;
  static constexpr int tile_bytes = Panels * kTileBytes;
  static constexpr int q_bytes = WG * tile_bytes;
  static constexpr int stage_bytes = 2 * tile_bytes;
  static constexpr int barrier_bytes = 256;
  static constexpr int bytes = 1024 + q_bytes + stages * stage_bytes + barrier_bytes;
};

// Tensor maps of q, k and v.
struct Maps {
  const CUtensorMap *q, *k, *v;
};

template <typename S> struct ForwardMemory {
  uint8_t *q, *stage;
  uint64_t *full_k, *full_v, *full_q;
  uint32_t* released;  // per stage: warps that are done with it

  __device__ __forceinline__ explicit ForwardMemory(uint8_t* raw) {
    q = raw + (1024 - shared_address(raw) % 1024) % 1024;
    stage = q + S::q_bytes;
    full_k = reinterpret_cast<uint64_t*>(stage + S::stages * S::stage_bytes);
    full_v = full_k + S::stages;
    full_q = full_v + S::stages;
    released = reinterpret_cast<uint32_t*>(full_q + 1);
  }
  // By one thread, before the block's first barrier.
  __device__ __forceinline__ void init(const Maps& maps) const {
    for (int s = 0; s < S::stages; ++s) {
      barrier_init(full_k + s, 1);
      barrier_init(full_v + s, 1);
      released[s] = 0;
    }
    barrier_init(full_q, 1);
    barrier_init_fence();
    prefetch_map(maps.q);
    prefetch_map(maps.k);
    prefetch_map(maps.v);
  }

  __device__ __forceinline__ uint8_t* k(int step) const { return stage + step % S::stages * S::stage_bytes; }
  __device__ __forceinline__ uint8_t* v(int step) const {
    return stage + step % S::stages * S::stage_bytes + S::tile_bytes;
  }
  __device__ __forceinline__ void await_k(int step) const { await(full_k, step); }
  __device__ __forceinline__ void await_v(int step) const { await(full_v, step); }

  // row_of(w): the first query of warpgroup w.
  template <typename RowOf>
  __device__ __forceinline__ void load_queries(const Maps& maps, RowOf row_of, int head, int batch) const {
    barrier_expect(full_q, S::q_bytes);
    for (int w = 0; w < S::warpgroups; ++w)
      for (int p = 0; p < S::panels; ++p)
        load_tile(q + (w * S::panels + p) * kTileBytes, maps.q, full_q, 64 * p, row_of(w), head, batch);
  }
  // row_of(step): the first key of the step's tile.
  template <typename RowOf>
  __device__ __forceinline__ void load_keys(const Maps& maps, int step, RowOf row_of, int head, int batch) const {
    const int s = step % S::stages, row = row_of(step);
    uint8_t* const k = stage + s * S::stage_bytes;
    uint8_t* const v = k + S::tile_bytes;
    barrier_expect(full_k + s, S::tile_bytes);
    for (int p = 0; p < S::panels; ++p) load_tile(k + p * kTileBytes, maps.k, full_k + s, 64 * p, row, head, batch);
    barrier_expect(full_v + s, S::tile_bytes);
    for (int p = 0; p < S::panels; ++p) load_tile(v + p * kTileBytes, maps.v, full_v + s, 64 * p, row, head, batch);
  }
  // By a leader lane whose warp is done with the step's stage: whether it was the last of the block's warps.
  __device__ __forceinline__ bool last_to_release(int step) const {
    if (count_up(released + step % S::stages) != 4 * S::warpgroups - 1) return false;
    released[step % S::stages] = 0;
    return true;
  }
  // Steps of the other warpgroup alone; a stage is released only after it was filled.
  template <typename Release> __device__ __forceinline__ void skip(int from, int to, const Release& release) const {
    for (int step = from; step < to; ++step) {
      await_k(step);
      release(step);
    }
  }

 private:
  static __device__ __forceinline__ void await(uint64_t* full, int step) {
    barrier_wait(full + step % S::stages, (step / S::stages) & 1);
  }
};

}  // namespace hopper
