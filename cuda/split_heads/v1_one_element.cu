// One element per thread, read in order; its destination by divisions.
#include "../common/launch.cuh"
#include "split_heads.cuh"

namespace {
constexpr int THREADS = 256;

template <typename T> __global__ void __launch_bounds__(THREADS) split_heads_one_element(const T* qkv, const T* bias,
                                                                                         T* out, SplitHeadsArgs args) {
  const int64_t width = (args.heads + 2 * args.kv_heads) * args.head_dim;
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= args.batch * args.seq * width) return;
  const int64_t r = i / width, j = i - r * width, b = r / args.seq, s = r - b * args.seq, h = j / args.head_dim;
  const HeadPlace place = head_place(h, args.batch, args.seq, args.heads, args.kv_heads, args.head_dim);
  T value = qkv[r * args.row + j];
  if (bias) value = from_float<T>(to_float(value) + to_float(bias[j]));
  out[place.begin + (b * place.heads * args.seq + s) * args.head_dim + j - h * args.head_dim] = value;
}
}  // namespace

FUSESCOPE_KERNEL(const SplitHeadsArgs* args, void* stream) {
  const int64_t total = args->batch * args->seq * (args->heads + 2 * args->kv_heads) * args->head_dim;
  const int64_t blocks = (total + THREADS - 1) / THREADS;
  if (blocks > INT32_MAX) return "unsupported: more than 2^39 elements";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    split_heads_one_element<T><<<unsigned(blocks), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(args->qkv), static_cast<const T*>(args->bias), static_cast<T*>(args->out), *args);
    return launch_error();
  });
}
