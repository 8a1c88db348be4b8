// What our own products on Hopper share (sm_90a): boxes by TMA in and out, clusters, dependent launches, and what
// follows a sum.
#pragma once
#include "../common/device.cuh"
#include "../common/exp2.cuh"
#include "../common/gelu.h"
#include "../common/hopper.cuh"
#include "../common/launch.cuh"
#include "../common/mma.cuh"
#include "../common/warpgroup.cuh"
#include "linear.cuh"

namespace {
using namespace hopper;

// Queues the copy of a box of a matrix from (column, row) on; what lies outside the matrix arrives as 0.
__device__ __forceinline__ void load_box(void* to, const CUtensorMap* map, uint64_t* barrier, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
          "r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(shared_address(barrier)), "r"(column), "r"(row)
      : "memory");
}
// The same to the same place in every block of the cluster that a bit of `blocks` names, each of whose barriers counts
// the bytes.
__device__ __forceinline__ void load_box(void* to, const CUtensorMap* map, uint64_t* barrier, int column, int row,
                                         uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(shared_address(barrier)), "r"(column), "r"(row), "h"(blocks)
      : "memory");
}
// Queues the copy of a box to a matrix; what lies outside it is not written.
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
// All threads of all blocks of the cluster.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Address of the same place in another block's shared memory.
__device__ __forceinline__ uint32_t in_block(const void* p, uint32_t rank) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(p)), "r"(rank));
  return address;
}
// Says so to another block's barrier, for what TMA may overwrite: nothing that this thread wrote is made visible with
// it, which would take a fence over all of memory.
__device__ __forceinline__ void arrive_in_block(uint64_t* barrier, uint32_t rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(in_block(barrier, rank)) : "memory");
}

// GELU with erf for a result of 16 bits: v (1 - q) = v - v q for v >= 0 and -|v| q below, q(a) = Phi(-a) = 2^R(a), a =
// |v|. R is a polynomial of degree 6, fitted to log2 Phi(-a) for a from 0 to 6 by least squares reweighted towards the
// largest error of the result: at most 3e-7, and 2.3e-6 of a result above 1e-3. Beyond 6 what is left out is below
// 6e-9. The other formula (cuda/bias_gelu) keeps fp32's accuracy and takes twice the instructions, which would outlast
// the product of the next tile. NaN stays NaN, -inf gives 0.
__device__ __forceinline__ float gelu_erf_short(float v) {
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

// What a sum becomes: the bias is added, then the activation.
template <int Activation> __device__ __forceinline__ float finished(float sum, float bias) {
  const float v = sum + bias;
  if constexpr (Activation == LINEAR_GELU_ERF)
    return gelu_erf_short(v);
  else if constexpr (Activation == LINEAR_GELU_TANH)
    return gelu_tanh(v, [](float u) { return exp2_approx(u * kLog2e); });
  else
    return v;
}

// Two neighbouring elements, the first at an even place: as they lie, and as numbers.
template <typename T> __device__ __forceinline__ uint32_t two_at(const T* from) {
  return *reinterpret_cast<const uint32_t*>(from);
}
template <typename T> __device__ __forceinline__ float2 numbers(uint32_t two) {
  if constexpr (std::is_same_v<T, __half>)
    return __half22float2(*reinterpret_cast<const __half2*>(&two));
  else
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&two));
}
template <typename T> __device__ __forceinline__ float2 pair_at(const T* from) { return numbers<T>(two_at(from)); }

// Why these kernels do not take a product, or nullptr.
inline const char* refused(const LinearArgs& args) {
  if (args.dtype == FS_FLOAT32)
    return "unsupported: float32 (our own products take float16 and bfloat16; use v2_measured)";
  if (args.turned) return "unsupported: a weight that is the transpose of a dense one (use v2_measured)";
  if (args.terms % 8 || args.outputs % 8 || args.x_row % 8 || args.weight_row % 8)
    return "unsupported: rows that are not multiples of 16 bytes apart (use v2_measured)";
  if (!aligned(args.x, 16) || !aligned(args.weight, 16) || !aligned(args.out, 16) || !aligned(args.bias, 4) ||
      !aligned(args.residual, 4) || args.residual_row % 2)
    return "unsupported: addresses that are not multiples of 16 bytes (use v2_measured)";
  if (args.rows > INT32_MAX || args.outputs > INT32_MAX || args.terms > INT32_MAX)
    return "unsupported: sizes of 2^31 and more";
  return nullptr;
}

template <typename T>
const char* matrix_map(CUtensorMap* to, const void* data, int64_t rows, int64_t cols, int64_t step, int64_t box_rows) {
  return cached_map<2>(to, std::is_same_v<T, __nv_bfloat16>, data, {rows, cols}, {step, 1}, {box_rows, 64});
}

// What a call of such a kernel comes to: why not, what algorithms there are, or body(zero of the C++ type, activation
// as a constant).
template <typename Body> const char* answer(const LinearArgs& args, Body body) {
  if (const char* why = refused(args)) return why;
  if (args.request == LINEAR_LIST) {
    *args.count = LINEAR_OWN;
    return nullptr;
  }
  auto with = [&](auto zero) {
    using std::integral_constant;
    switch (args.activation) {
      case LINEAR_GELU_ERF:
        return body(zero, integral_constant<int, LINEAR_GELU_ERF>{});
      case LINEAR_GELU_TANH:
        return body(zero, integral_constant<int, LINEAR_GELU_TANH>{});
    }
    return body(zero, integral_constant<int, LINEAR_NONE>{});
  };
  return args.dtype == FS_FLOAT16 ? with(__half{}) : with(__nv_bfloat16{});
}
}  // namespace
