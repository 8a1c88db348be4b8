// The sum in registers: each embedding read once, in 16-byte pieces; a warp or a block a token by the width.
#include "../common/reduce.cuh"
#include "../common/row.cuh"
#include "embedding_layernorm.cuh"

namespace {
// A block holds one token, or (Threads = 32) each of its four warps one.
template <int Threads> constexpr int TOKENS = Threads == 32 ? 4 : 1;

template <typename T, int Threads, int Each, bool Wide>
__global__ void __launch_bounds__(Threads* TOKENS<Threads>) embedding_layernorm_held(EmbeddingLayernormArgs args) {
  const int64_t t = int64_t(blockIdx.x) * TOKENS<Threads> + threadIdx.x / Threads;
  if (t >= args.tokens) return;  // whole warps leave, and only where a token is a warp's
  const int cols = int(args.cols);
  using Held = row::Held<T, Threads, Each, Wide>;
  Held held(threadIdx.x % Threads, cols);
  T* out = static_cast<T*>(args.out) + t * args.cols;
  const T* row[3];
  bool known = true;
#pragma unroll
  for (int which = 0; which < 3; ++which) {
    row[which] = nullptr;
    if (!args.table[which].rows) continue;
    const int64_t id = embedding_row(args, which, t);
    known = known && id >= 0;
    if (id >= 0) row[which] = static_cast<const T*>(args.table[which].rows) + id * args.table[which].step;
  }
  if (!known) {  // the whole group leaves
    held.each_pack([&](int at, float* v) {
#pragma unroll
      for (int e = 0; e < Held::Width; ++e) v[e] = NAN;
      Held::write_pack(out + at, v);
    });
    return;
  }
  const float first =
      to_float(row[0][0]) + (row[1] ? to_float(row[1][0]) : 0.0f) + (row[2] ? to_float(row[2][0]) : 0.0f);
  held.load(row[0]);
  float sum = 0.0f, squares = 0.0f;
  held.each_pack([&](int at, float* v) {
    float p[Held::Width] = {}, k[Held::Width] = {};
    if (row[1]) Held::read_pack(row[1] + at, p);
    if (row[2]) Held::read_pack(row[2] + at, k);
#pragma unroll
    for (int e = 0; e < Held::Width; ++e) {
      v[e] = v[e] + p[e] + k[e] - first;
      sum += v[e];
    }
  });
  const float mean = group_reduce<Sum, Threads>(sum) / float(cols);  // of what is left without the first element
  held.each([&](float& v) {
    v -= mean;
    squares += v * v;
  });
  const float scale = rsqrtf(group_reduce<Sum, Threads>(squares) / float(cols) + args.eps);
  auto weight = static_cast<const T*>(args.weight), shift = static_cast<const T*>(args.shift);
  held.each_pack([&](int at, float* v) {
    float w[Held::Width], s[Held::Width];
    Held::read_pack(weight + at, w);
    Held::read_pack(shift + at, s);
#pragma unroll
    for (int e = 0; e < Held::Width; ++e) v[e] = v[e] * scale * w[e] + s[e];
    Held::write_pack(out + at, v);
  });
}

template <typename T, bool Wide> const char* launch(const EmbeddingLayernormArgs& args, cudaStream_t stream) {
  return row::by_length(args.cols, [&](auto threads, auto each) -> const char* {
    constexpr int tokens = TOKENS<threads.value>;
    const int64_t blocks = (args.tokens + tokens - 1) / tokens;
    if (blocks > row::MOST_BLOCKS) return "unsupported: more than 2^31 tokens";
    embedding_layernorm_held<T, threads.value, each.value, Wide>
        <<<unsigned(blocks), threads.value * tokens, 0, stream>>>(args);
    return launch_error();
  });
}
}  // namespace

FUSESCOPE_KERNEL(const EmbeddingLayernormArgs* args, void* stream) {
  if (args->cols > row::MOST_HELD)
    return "unsupported: embeddings of more than 32768 elements (v1_block_row takes them)";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    bool wide = aligned(args->weight, 16) && aligned(args->shift, 16);
    for (const EmbeddingTable& table : args->table)
      wide = wide && row::wide_rows<T>(table.rows, table.step, args->out, args->cols);
    auto on = static_cast<cudaStream_t>(stream);
    return wide ? launch<T, true>(*args, on) : launch<T, false>(*args, on);
  });
}
