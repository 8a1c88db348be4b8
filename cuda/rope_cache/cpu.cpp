// One token at a time: its row of cosines and sines serves all of its heads, each a vectorised pass.
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "../common/cpu_convert.h"
#include "rope_cache.cuh"

using namespace fusescope_cpu;

namespace {
constexpr int64_t MOST = 1024;  // elements of a head, whose fp32 copies lie on the stack

// A head turned; row: its token's cosines and sines, nullptr where there are none.
template <typename T> void turn(const T* x, const float* row, T* to, int64_t rotary, int64_t depth) {
  const int64_t half = rotary / 2;
  if (!row) {
    for (int64_t j = 0; j < rotary; ++j) to[j] = from_float<T>(std::numeric_limits<float>::quiet_NaN());
  } else {
    float wide[MOST], turned[MOST];
    widen(x, wide, rotary);
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
      turned[i] = wide[i] * row[i] - wide[i + half] * row[i + half];
      turned[i + half] = wide[i + half] * row[i] + wide[i] * row[i + half];
    }
    narrow(turned, to, rotary);
  }
  std::memcpy(to + rotary, x + rotary, size_t(depth - rotary) * sizeof(T));
}

// The same over a scale, rounded once. rotary 0: nothing turns.
template <typename T> void turn(const T* x, const float* row, E4m3* to, int64_t rotary, int64_t depth, float scale) {
  const int64_t half = rotary / 2;
  auto put = [&](int64_t i, float value) { to[i] = e4m3_of(value / scale); };
  for (int64_t i = 0; i < half; ++i) {
    const float first = to_float(x[i]), second = to_float(x[i + half]);
    const float c = row ? row[i] : NAN, s = row ? row[i + half] : NAN;
    put(i, first * c - second * s);
    put(i + half, second * c + first * s);
  }
  for (int64_t i = rotary; i < depth; ++i) put(i, to_float(x[i]));
}

// C: an element of the caches.
template <typename T, typename C> void tokens_of(const RopeCacheArgs& a) {
  const int64_t depth = a.head_dim, work = a.tokens * (a.heads + 2 * a.kv_heads) * depth;
  auto out = static_cast<T*>(a.out);
  auto k_cache = static_cast<C*>(a.k_cache), v_cache = static_cast<C*>(a.v_cache);
  const RopeCacheScales scales = scales_of(a);
#pragma omp parallel for schedule(static) if (a.batch * work > 8192)
  for (int64_t t = 0; t < a.batch * a.tokens; ++t) {
    const int64_t b = t / a.tokens, s = t % a.tokens;
    auto head = [&](const RopeOperand& from, int64_t h) {
      return static_cast<const T*>(from.data) + b * from.batch + s * from.token + h * from.head;
    };
    const int64_t angles = a.cos_sin ? angle_row(a, b, s) : -1;
    const float* row = angles < 0 ? nullptr : a.cos_sin + angles * a.rotary;
    for (int64_t h = 0; a.cos_sin && h < a.heads; ++h)
      turn(head(a.q, h), row, out + (t * a.heads + h) * depth, a.rotary, depth);
    const CacheRow place = cache_row(a, b, s);
    for (int64_t h = 0; place.page >= 0 && h < a.kv_heads; ++h) {
      auto at = [&](const RopeCacheStrides& step) {
        return place.page * step.page + h * step.head + place.row * step.row;
      };
      if constexpr (std::is_same_v<C, E4m3>) {
        turn(head(a.k, h), row, k_cache + at(a.k_stride), a.rotary, depth, scales.k[h]);
        turn(head(a.v, h), nullptr, v_cache + at(a.v_stride), 0, depth, scales.v[h]);
      } else {
        turn(head(a.k, h), row, k_cache + at(a.k_stride), a.rotary, depth);
        std::memcpy(v_cache + at(a.v_stride), head(a.v, h), size_t(depth) * sizeof(T));
      }
    }
  }
}
}  // namespace

FUSESCOPE_KERNEL(const RopeCacheArgs* args, void*) {
  if (args->rotary > MOST) return "unsupported: more than 1024 rotated elements of a head";
  return dispatch(args->dtype & ~kE4m3Cache, [&](auto zero) -> const char* {
    using T = decltype(zero);
    if (args->dtype & kE4m3Cache)
      tokens_of<T, E4m3>(*args);
    else
      tokens_of<T, T>(*args);
    return nullptr;
  });
}
