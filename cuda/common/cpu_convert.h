// Runs of 16-bit floats to fp32 and back, by the machine's own conversion instructions: GCC does not vectorise _Float16
// casts.
#pragma once
#ifdef __F16C__
#include <immintrin.h>
#endif

#include "cpu.h"

namespace fusescope_cpu {

template <typename T> inline void widen(const T* from, float* to, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
}

template <typename T> inline void narrow(const float* from, T* to, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = from_float<T>(from[i]);
}

#ifdef __F16C__
template <> inline void widen(const Half* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  for (; i < count; ++i) to[i] = _cvtsh_ss(from[i].bits);
}

template <> inline void narrow(const float* from, Half* to, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  for (; i < count; ++i) to[i].bits = _cvtss_sh(from[i], _MM_FROUND_TO_NEAREST_INT);
}
#endif

}  // namespace fusescope_cpu
