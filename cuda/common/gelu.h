// GELU in plain arithmetic, for CUDA and vectorised CPU loops alike; the exponential is the caller's. The formulas
// stand in cuda/bias_gelu/bias_gelu.cuh.
#pragma once

#ifdef __CUDACC__
#define FUSESCOPE_BOTH __device__ __forceinline__
#else
#define FUSESCOPE_BOTH inline __attribute__((always_inline))
#endif

// With erf; exp(x) is called for x <= 0. NaN stays NaN, -inf gives NaN as in torch, +inf stays.
template <typename Exp> FUSESCOPE_BOTH float gelu_erf(float v, Exp exp) {
  const float a = v < 0.0f ? -v : v;
  const float t = 1.0f / (1.0f + 0.3f * a);
  float p = 0.03621249908f;
  p = p * t - 0.1594516749f;
  p = p * t + 0.2102446438f;
  p = p * t - 0.0572835473f;
  p = p * t + 0.1304780061f;
  p = p * t + 0.0993284055f;
  p = p * t + 0.1208485485f;
  p = p * t + 0.1196230639f;
  const float tail = exp(-0.5f * a * a) * (p * t);
  return v * (v < 0.0f ? tail : 1.0f - tail);
}

// With tanh.
template <typename Exp> FUSESCOPE_BOTH float gelu_tanh(float v, Exp exp) {
  const float u = 1.59576912f * v * (1.0f + 0.044715f * v * v);  // 2 sqrt(2 / pi) (v + 0.044715 v^3)
  const float e = exp(u < 0.0f ? u : -u);                        // of what is not positive: never overflows
  return v * (u < 0.0f ? e : 1.0f) / (1.0f + e);
}
