// One block per token, three passes, each gathering the embeddings anew: mean, variance about it, result.
#include "../common/launch.cuh"
#include "../common/reduce.cuh"
#include "rows.cuh"

namespace {
constexpr int THREADS = 256;

template <typename T>
__global__ void __launch_bounds__(THREADS) embedding_layernorm_block_row(EmbeddingLayernormArgs args) {
  const int64_t t = blockIdx.x, cols = args.cols;
  auto weight = static_cast<const T*>(args.weight), shift = static_cast<const T*>(args.shift);
  T* out = static_cast<T*>(args.out) + t * cols;
  const T* row[3];
  if (!embedding_rows(args, t, row)) {  // the whole block leaves
    for (int64_t j = threadIdx.x; j < cols; j += THREADS) out[j] = from_float<T>(NAN);
    return;
  }
  auto sum_at = [&](int64_t j) {
    float s = to_float(row[0][j]);
    if (row[1]) s += to_float(row[1][j]);
    if (row[2]) s += to_float(row[2][j]);
    return s;
  };
  const float first = sum_at(0);
  float sum = 0.0f, squares = 0.0f;
  for (int64_t j = threadIdx.x; j < cols; j += THREADS) sum += sum_at(j) - first;
  const float mean = group_reduce<Sum, THREADS>(sum) / float(cols);  // of what is left without the first element
  for (int64_t j = threadIdx.x; j < cols; j += THREADS) {
    const float d = sum_at(j) - first - mean;
    squares += d * d;
  }
  const float scale = rsqrtf(group_reduce<Sum, THREADS>(squares) / float(cols) + args.eps);
  for (int64_t j = threadIdx.x; j < cols; j += THREADS)
    out[j] = from_float<T>((sum_at(j) - first - mean) * scale * to_float(weight[j]) + to_float(shift[j]));
}
}  // namespace

FUSESCOPE_KERNEL(const EmbeddingLayernormArgs* args, void* stream) {
  if (args->tokens > INT32_MAX) return "unsupported: more than 2^31 tokens";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    embedding_layernorm_block_row<T><<<unsigned(args->tokens), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(*args);
    return launch_error();
  });
}
