// What our own matrix products on Hopper share (sm_90a): TMA loads and stores, clusters, the epilogue, dispatch.
#pragma once
#include "../common/device.cuh"
#include "../common/exp2.cuh"
#include "../common/gelu.h"
#include "../common/hopper.cuh"
#include "../common/launch.cuh"
#include "../common/mma.cuh"
#include "../common/warpgroup.cuh"
#include "own_product.cuh"

namespace {
using namespace hopper;

// TMA load of the box at (column, row) of a matrix; elements outside the matrix are 0.
__device__ __forceinline__ void load_box(void* to, const CUtensorMap* map, uint64_t* barrier, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
          "r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(shared_address(barrier)), "r"(column), "r"(row)
      : "memory");
}
// Multicast: the same load to the same address in every block of the cluster whose bit is set in `blocks`; the barrier
// of each counts the bytes.
__device__ __forceinline__ void load_box(void* to, const CUtensorMap* map, uint64_t* barrier, int column, int row,
                                         uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(shared_address(barrier)), "r"(column), "r"(row), "h"(blocks)
      : "memory");
}
// TMA store of a box to a matrix; elements outside the matrix are not written.
__device__ __forceinline__ void store_box(const CUtensorMap* map, const void* from, int column, int row) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
                   reinterpret_cast<uint64_t>(map)),
               "r"(shared_address(from)), "r"(column), "r"(row)
               : "memory");
  commit_tma_stores();
}

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// By all threads of all blocks of the cluster.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The shared-memory address p in another block of the cluster.
__device__ __forceinline__ uint32_t cluster_address(const void* p, uint32_t rank) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(p)), "r"(rank));
  return address;
}
// Arrives at another block's barrier to release a stage to TMA. It does not make this thread's writes visible, which
// would take a cluster-wide fence.
__device__ __forceinline__ void arrive_in_block(uint64_t* barrier, uint32_t rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(cluster_address(barrier, rank)) : "memory");
}

// GELU with erf for 16-bit results: v (1 - q) = v - v q for v >= 0 and -|v| q below, q(a) = Phi(-a) = 2^R(a), a =
// |v|. R is a polynomial of degree 6, fitted to log2 Phi(-a) for a from 0 to 6 by least squares reweighted towards the
// largest error of the result: at most 3e-7, and 2.3e-6 of a result above 1e-3. The tail beyond
// 6 is below 6e-9. The formula of cuda/bias_gelu has fp32 accuracy but twice the instructions, which would take longer
// than the product of the next tile. NaN stays NaN, -inf gives 0.
__device__ __forceinline__ float gelu_erf_16bit(float v) {
  float a;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(fabsf(v)), "f"(6.0f));
  float r = 3.54593001e-05f;
  r = r * a - 0.000785179717f;
  r = r * a + 0.00811022883f;
  r = r * a - 0.0534064782f;
  r = r * a - 0.458828541f;
  r = r * a - 1.15116067f;
  r = r * a - 0.999999556f;
  return fmaxf(v, 0.0f) - a * exp2_approx(r);
}

// activation(sum + bias)
template <int Activation> __device__ __forceinline__ float epilogue(float sum, float bias) {
  const float v = sum + bias;
  if constexpr (Activation == LINEAR_GELU_ERF)
    return gelu_erf_16bit(v);
  else if constexpr (Activation == LINEAR_GELU_TANH)
    return gelu_tanh(v, [](float u) { return exp2_approx(u * kLog2e); });
  else
    return v;
}

// Two neighbouring elements, the first at an even index: packed, and as floats.
template <typename T> __device__ __forceinline__ uint32_t load_packed(const T* from) {
  return *reinterpret_cast<const uint32_t*>(from);
}
template <typename T> __device__ __forceinline__ float2 unpack(uint32_t two) {
  if constexpr (std::is_same_v<T, __half>)
    return __half22float2(*reinterpret_cast<const __half2*>(&two));
  else
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&two));
}
template <typename T> __device__ __forceinline__ float2 load_pair(const T* from) {
  return unpack<T>(load_packed(from));
}

template <typename T>
const char* matrix_map(CUtensorMap* to, const void* data, int64_t rows, int64_t cols, int64_t step, int64_t box_rows) {
  return cached_map<2>(to, std::is_same_v<T, __nv_bfloat16>, data, {rows, cols}, {step, 1}, {box_rows, 64});
}
}  // namespace
