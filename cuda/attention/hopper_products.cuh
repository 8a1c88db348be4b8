// The two products of a warpgroup with a KV tile in shared memory: S = Q K^T of its 64 query rows, and O += P V.
#pragma once
#include "../common/hopper.cuh"
#include "../common/mma.cuh"

namespace hopper {

// A query tile in shared memory as operands in registers; by all threads of a warpgroup.
template <int Steps>
__device__ __forceinline__ void read_fragments(uint32_t (&q)[Steps][4], const uint8_t* tile, int warp, int lane) {
  const int r = 16 * (warp % 4) + lane % 16;
#pragma unroll
  for (int i = 0; i < Steps; ++i) {
    const int chunk = 2 * (i % 4) + lane / 16;
    tensor_core::ldmatrix_x4(q[i], shared_address(tile + (i / 4) * kTileBytes + r * 128 + ((chunk ^ (r & 7)) << 4)));
  }
}

// x = q k^T, of the query tile in shared memory or, InRegisters, of its fragments.
template <typename T, int Panels, bool InRegisters, int Steps>
__device__ __forceinline__ void start_product(float (&x)[32], const uint8_t* tile, const uint32_t (&q)[Steps][4],
                                              const uint8_t* k) {
  fence_registers(x);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4 * Panels; ++i) {
    const uint64_t kd = tile_descriptor(k + (i / 4) * kTileBytes) + (i % 4) * kStepColumns;
    if constexpr (InRegisters)
      wgmma_64x64x16<T, 0>(x, q[i], kd, i > 0);
    else
      wgmma_64x64x16<T>(x, tile_descriptor(tile + (i / 4) * kTileBytes) + (i % 4) * kStepColumns, kd, i > 0);
  }
  wgmma_commit();
}

// O += P V of a warpgroup; not divided by the sums.
template <typename T, int Panels> struct Context {
  float o[Panels][32];
  uint32_t weights[4][4];

  __device__ __forceinline__ void pack_weights(const float (&x)[32]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) weights[i / 4][i % 4] = tensor_core::pack<T>(x[2 * i], x[2 * i + 1]);
  }
  __device__ __forceinline__ void start(const uint8_t* v, bool accumulate) {
    fence();
    wgmma_fence();
#pragma unroll
    for (int p = 0; p < Panels; ++p)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        wgmma_64x64x16<T, 1>(o[p], weights[i], tile_descriptor(v + p * kTileBytes) + i * kStepRows,
                             i > 0 || accumulate);
    wgmma_commit();
  }
  __device__ __forceinline__ void finish() {
    wgmma_wait<0>();
    fence();
  }
  __device__ __forceinline__ void rescale(const float (&shrink)[2]) {
#pragma unroll
    for (int p = 0; p < Panels; ++p)
#pragma unroll
      for (int i = 0; i < 32; ++i) o[p][i] *= shrink[(i >> 1) & 1];
  }

 private:
  __device__ __forceinline__ void fence() {
#pragma unroll
    for (int p = 0; p < Panels; ++p) fence_registers(o[p]);
  }
};

}  // namespace hopper
