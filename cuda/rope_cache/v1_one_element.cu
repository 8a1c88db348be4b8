// One thread per element of q, k and v; its head and token by divisions, its partner in the other half read again.
#include "../common/launch.cuh"
#include "rope_cache.cuh"

namespace {
constexpr int THREADS = 256;

// Element j of a head turned; row: its token's cosines and sines, nullptr where there are none.
template <typename T>
__device__ __forceinline__ T turned(const T* x, int j, const float* row, const RopeCacheArgs& args) {
  if (j >= args.rotary) return x[j];
  if (!row) return from_float<T>(NAN);
  const int half = args.rotary / 2, i = j < half ? j : j - half;
  const float first = to_float(x[i]), second = to_float(x[i + half]), c = row[i], s = row[i + half];
  return from_float<T>(j < half ? first * c - second * s : second * c + first * s);
}

template <typename T> __global__ void __launch_bounds__(THREADS) rope_cache_one_element(RopeCacheArgs args) {
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
    if (args.cos_sin) static_cast<T*>(args.out)[(t * args.heads + h) * depth + j] = turned(head(args.q), j, row, args);
    return;
  }
  const CacheRow place = cache_row(args, b, s);
  if (place.page < 0) return;
  h -= args.heads;
  const bool key = h < args.kv_heads;
  if (!key) h -= args.kv_heads;
  const RopeCacheStrides& step = key ? args.k_stride : args.v_stride;
  T* to = static_cast<T*>(key ? args.k_cache : args.v_cache) + place.page * step.page + h * step.head +
          place.row * step.row;
  to[j] = key ? turned(head(args.k), j, row, args) : head(args.v)[j];
}
}  // namespace

FUSESCOPE_KERNEL(const RopeCacheArgs* args, void* stream) {
  const int64_t total = args->batch * args->tokens * (args->heads + 2 * int64_t(args->kv_heads)) * args->head_dim;
  const int64_t blocks = (total + THREADS - 1) / THREADS;
  if (blocks > INT32_MAX) return "unsupported: more than 2^39 elements";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    rope_cache_one_element<T><<<unsigned(blocks), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(*args);
    return launch_error();
  });
}
