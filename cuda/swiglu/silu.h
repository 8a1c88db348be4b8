// SiLU in plain arithmetic, for CUDA and vectorised CPU loops alike; the exponential is the caller's.
#pragma once

// g sigmoid(g); exp(x) is called for x <= 0 only, so nothing overflows. NaN stays NaN, and -inf gives NaN as in torch.
template <typename Exp>
#ifdef __CUDACC__
__device__ __forceinline__
#else
inline __attribute__((always_inline))
#endif
float silu(float g, Exp exp) {
  const float e = exp(g < 0.0f ? g : -g);
  return g * (g < 0.0f ? e : 1.0f) / (1.0f + e);
}
