// What v2_dot and the tensor-core kernels share: loads of sixteen columns, the end of an output, and the choice of an
// instance.
#pragma once
#include "../common/device.cuh"
#include "../common/eight_bit.cuh"
#include "../common/gelu.h"
#include "../common/load_once.cuh"
#include "linear_weight_only.cuh"

namespace {

// Sixteen weights from column k on, zeros beyond `terms`. Wide: rows begin at multiples of 16 bytes and terms is a
// multiple of 16. Lines: as load_once has it.
template <bool Wide, bool Lines = false>
__device__ __forceinline__ uint4 load_weights(const uint8_t* row, int64_t k, int64_t terms) {
  uint4 v = {0, 0, 0, 0};
  if constexpr (Wide) {
    if (k < terms) load_once<Lines>(v, row + k);
  } else {
    uint32_t word[4] = {};
#pragma unroll
    for (int e = 0; e < 16; ++e)
      if (k + e < terms) word[e / 4] |= uint32_t(row[k + e]) << (8 * (e % 4));
    v = {word[0], word[1], word[2], word[3]};
  }
  return v;
}

// Sixteen elements of a row of x, zeros beyond `terms` and where the row is not inside.
template <typename T> struct alignas(16) Sixteen {
  T value[16];
};
template <typename T, bool Wide>
__device__ __forceinline__ Sixteen<T> load_x(const T* row, int64_t k, int64_t terms, bool inside) {
  Sixteen<T> v;
  if constexpr (Wide) {
    constexpr int vectors = int(sizeof(T));
    auto to = reinterpret_cast<uint4*>(&v);
#pragma unroll
    for (int i = 0; i < vectors; ++i) to[i] = {0, 0, 0, 0};
    if (inside && k < terms) {
#pragma unroll
      for (int i = 0; i < vectors; ++i) to[i] = reinterpret_cast<const uint4*>(row + k)[i];
    }
  } else {
#pragma unroll
    for (int e = 0; e < 16; ++e) v.value[e] = inside && k + e < terms ? row[k + e] : from_float<T>(0.0f);
  }
  return v;
}

__device__ __forceinline__ uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : (i == 1 ? v.y : (i == 2 ? v.z : v.w));
}

// Writes element (r, n) from its sum of products.
template <typename T>
__device__ __forceinline__ void finish_one(const LinearWeightOnlyArgs& args, int64_t r, int64_t n, float sum) {
  float v = sum * args.scales[n];
  if (args.bias) v += to_float(static_cast<const T*>(args.bias)[n]);
  auto exp = [](float u) { return __expf(u); };
  if (args.activation == WEIGHT_ONLY_GELU_ERF) v = gelu_erf(v, exp);
  if (args.activation == WEIGHT_ONLY_GELU_TANH) v = gelu_tanh(v, exp);
  if (args.residual) v += to_float(static_cast<const T*>(args.residual)[r * args.residual_row + n]);
  static_cast<T*>(args.out)[r * args.outputs + n] = from_float<T>(v);
}

// Whether every row of x and weight begins at a multiple of 16 bytes and ends with a whole piece of sixteen.
template <typename T> bool sixteen_wide(const LinearWeightOnlyArgs& a) {
  return a.terms % 16 == 0 && aligned(a.x, 16) && aligned(a.weight, 16) &&
         (a.rows == 1 || a.x_row * int64_t(sizeof(T)) % 16 == 0) && (a.outputs == 1 || a.weight_row % 16 == 0);
}

// body(format, wide) as integral constants.
template <typename T, typename Body> const char* with_format(const LinearWeightOnlyArgs& args, Body body) {
  using std::integral_constant;
  auto with = [&](auto format) {
    return sixteen_wide<T>(args) ? body(format, std::true_type{}) : body(format, std::false_type{});
  };
  return args.format == WEIGHT_INT8 ? with(integral_constant<int, WEIGHT_INT8>{})
                                    : with(integral_constant<int, WEIGHT_E4M3>{});
}
}  // namespace
