// What every CUDA kernel file needs around a launch: the error text, and the conversion of each dtype to and from fp32.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <type_traits>

#include "interface.h"

// nullptr after a good launch, else CUDA's text. Reads and clears the launch error only; it does not wait for the
// kernel.
inline const char* launch_error() {
  cudaError_t status = cudaGetLastError();
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x) { return x; }
template <> __device__ __forceinline__ __half from_float<__half>(float x) { return __float2half_rn(x); }
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// Calls body with a value of the C++ type that a FusescopeDtype names: dispatch(dtype, [&](auto zero) { using T =
// decltype(zero); ... }).
template <typename Body> inline const char* dispatch(int dtype, Body body) {
  switch (dtype) {
    case FS_FLOAT32:
      return body(float{});
    case FS_FLOAT16:
      return body(__half{});
    case FS_BFLOAT16:
      return body(__nv_bfloat16{});
  }
  return "unsupported: dtype (float32, float16 and bfloat16 are)";
}

// The same for kernels that take 16-bit types only; refusal: the text for others.
template <typename Body> inline const char* dispatch_16bit(int dtype, const char* refusal, Body body) {
  if (dtype == FS_FLOAT16) return body(__half{});
  return dtype == FS_BFLOAT16 ? body(__nv_bfloat16{}) : refusal;
}

// Calls body with the smallest of the ascending Widths that holds `size` columns, else with the last, as an integral
// constant.
template <int Width, int... Wider, typename Body> inline const char* with_width(int size, Body body) {
  if constexpr (sizeof...(Wider) > 0) {
    if (size > Width) return with_width<Wider...>(size, body);
  }
  return body(std::integral_constant<int, Width>{});
}
