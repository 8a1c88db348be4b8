// SiLU in plain arithmetic, for CUDA and vectorised CPU loops alike; the exponential is the caller's.
#pragma once

#ifdef __CUDACC__
#define SILU_FUNCTION __device__ __forceinline__
#else
#define SILU_FUNCTION inline __attribute__((always_inline))
#endif

// g sigmoid(g); exp(x) is called for x <= 0 only, so nothing overflows. NaN stays NaN, and -inf gives NaN as in torch.
template <typename Exp> SILU_FUNCTION float silu(float g, Exp exp) {
  const float e = exp(g < 0.0f ? g : -g);
  return g * (g < 0.0f ? e : 1.0f) / (1.0f + e);
}

// The same with the caller's reciprocal, of a number from 1 to 2.
template <typename Exp, typename Reciprocal> SILU_FUNCTION float silu(float g, Exp exp, Reciprocal reciprocal) {
  const float e = exp(-__builtin_fabsf(g));
  return g * (g < 0.0f ? e : 1.0f) * reciprocal(1.0f + e);
}
