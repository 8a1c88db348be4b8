// Rows split over the OpenMP threads; each head of a row is one vectorised sum, or a copy, to its place.
#include <cstring>
#include <type_traits>

#include "../common/cpu_norm.h"
#include "split_heads.cuh"

using namespace fusescope_cpu;

namespace {
// A head of a row plus its bias (fp32), in chunks that stay in registers or the first-level cache.
template <typename T> void add(const T* x, const float* bias, T* out, int64_t count) {
  if constexpr (std::is_same_v<T, Half>) {
    constexpr int64_t block = 64;
    float wide[block];
    for (int64_t from = 0; from < count; from += block) {
      const int64_t n = count - from < block ? count - from : block;
      widen(x + from, wide, n);
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) wide[j] += bias[from + j];
      narrow(wide, out + from, n);
    }
  } else {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) out[j] = from_float<T>(to_float(x[j]) + bias[j]);
  }
}

template <typename T> void split(const SplitHeadsArgs& args) {
  auto qkv = static_cast<const T*>(args.qkv);
  auto out = static_cast<T*>(args.out);
  const int64_t depth = args.head_dim, count = args.heads + 2 * args.kv_heads, width = count * depth;
  const Widened<T> bias(args.bias, width);
#pragma omp parallel for schedule(static) if (args.batch * args.seq * width > 8192)
  for (int64_t r = 0; r < args.batch * args.seq; ++r) {
    const int64_t b = r / args.seq, s = r % args.seq;
    const T* from = qkv + r * args.row;
    for (int64_t h = 0; h < count; ++h) {
      const HeadPlace place = head_place(h, args.batch, args.seq, args.heads, args.kv_heads, depth);
      T* to = out + place.begin + (b * place.heads * args.seq + s) * depth;
      if (bias.data)
        add(from + h * depth, bias.data + h * depth, to, depth);
      else
        std::memcpy(to, from + h * depth, size_t(depth) * sizeof(T));
    }
  }
}
}  // namespace

FUSESCOPE_KERNEL(const SplitHeadsArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) -> const char* {
    split<decltype(zero)>(*args);
    return nullptr;
  });
}
