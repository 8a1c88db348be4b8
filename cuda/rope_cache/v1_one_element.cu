// One thread per element of q, k and v; its head and token by divisions, its partner in the other half read again.
#include "../common/e4m3.cuh"
#include "../common/launch.cuh"
#include "rope_cache.cuh"

namespace {
constexpr int THREADS = 256;

// Element j of a head turned, as To; row: its token's cosines and sines, nullptr where there are none.
template <typename To, typename T>
__device__ __forceinline__ To turned(const T* x, int j, const float* row, const RopeCacheArgs& args) {
  if constexpr (std::is_same_v<T, To>) {
    if (j >= args.rotary) return x[j];
  } else {
    if (j >= args.rotary) return to_float(x[j]);
  }
  if (!row) return from_float<To>(NAN);
  const int half = args.rotary / 2, i = j < half ? j : j - half;
  const float first = to_float(x[i]), second = to_float(x[i + half]), c = row[i], s = row[i + half];
  return from_float<To>(j < half ? first * c - second * s : second * c + first * s);
}

// C: an element of the caches; Scales: RopeCacheScales where that is E4m3, else nothing.
template <typename T, typename C, typename... Scales>
__global__ void __launch_bounds__(THREADS) rope_cache_one_element(RopeCacheArgs args, Scales... scales) {
  const int64_t heads = args.heads + 2 * int64_t(args.kv_heads), depth = args.head_dim;
  const int64_t n = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (n >= args.batch * args.tokens * heads * depth) return;
  const int64_t t = n / (heads * depth), b = t / args.tokens, s = t - b * args.tokens;
  const int j = int(n % depth);
  int64_t h = n / depth - t * heads;
  const int64_t angles = args.cos_sin ? angle_row(args, b, s) : -1;
  const float* row = angles < 0 ? nullptr : args.cos_sin + angles * args.rotary;
  auto head = [&](const RopeOperand& from) {
    return static_cast<const T*>(from.data) + b * from.batch + s * from.token + h * from.head;
  };
  if (h < args.heads) {
    if (args.cos_sin)
      static_cast<T*>(args.out)[(t * args.heads + h) * depth + j] = turned<T>(head(args.q), j, row, args);
    return;
  }
  const CacheRow place = cache_row(args, b, s);
  if (place.page < 0) return;
  h -= args.heads;
  const bool key = h < args.kv_heads;
  if (!key) h -= args.kv_heads;
  const RopeCacheStrides& step = key ? args.k_stride : args.v_stride;
  C* to = static_cast<C*>(key ? args.k_cache : args.v_cache) + place.page * step.page + h * step.head +
          place.row * step.row;
  if constexpr (std::is_same_v<C, E4m3>) {
    const float scale = key ? (scales.k, ...)[h] : (scales.v, ...)[h];
    to[j] = to_e4m3((key ? turned<float>(head(args.k), j, row, args) : to_float(head(args.v)[j])) / scale);
  } else {
    to[j] = key ? turned<T>(head(args.k), j, row, args) : head(args.v)[j];
  }
}
}  // namespace

FUSESCOPE_KERNEL(const RopeCacheArgs* args, void* stream) {
  const int64_t total = args->batch * args->tokens * (args->heads + 2 * int64_t(args->kv_heads)) * args->head_dim;
  const int64_t blocks = (total + THREADS - 1) / THREADS;
  if (blocks > INT32_MAX) return "unsupported: more than 2^39 elements";
  return dispatch(args->dtype & ~kE4m3Cache, [&](auto zero) {
    using T = decltype(zero);
    auto on = static_cast<cudaStream_t>(stream);
    if (args->dtype & kE4m3Cache) {
      rope_cache_one_element<T, E4m3><<<unsigned(blocks), THREADS, 0, on>>>(*args, scales_of(*args));
    } else {
      rope_cache_one_element<T, T><<<unsigned(blocks), THREADS, 0, on>>>(*args);
    }
    return launch_error();
  });
}
