// The sum in registers: each embedding read once, in 16-byte vectors; a warp or a block per token by the width.
#include "../common/row_norm.cuh"
#include "rows.cuh"

namespace {
template <typename T, int Threads, int Each, bool Wide>
__global__ void __launch_bounds__(Threads* row::ROWS<Threads>) embedding_layernorm_registers(
    EmbeddingLayernormArgs args) {
  const int64_t t = int64_t(blockIdx.x) * row::ROWS<Threads> + threadIdx.x / Threads;
  if (t >= args.tokens) return;  // whole warps leave, and only where a token is a warp's
  const int cols = int(args.cols);
  using Regs = row::Registers<T, Threads, Each, Wide>;
  Regs regs(threadIdx.x % Threads, cols);
  T* out = static_cast<T*>(args.out) + t * args.cols;
  const T* from[3];
  if (!embedding_rows(args, t, from)) {  // the whole group leaves
    regs.each_pack([&](int at, float* v) {
#pragma unroll
      for (int e = 0; e < Regs::Width; ++e) v[e] = NAN;
      Regs::write_pack(out + at, v);
    });
    return;
  }
  const float first =
      to_float(from[0][0]) + (from[1] ? to_float(from[1][0]) : 0.0f) + (from[2] ? to_float(from[2][0]) : 0.0f);
  regs.load(from[0]);
  float sum = 0.0f;
  regs.each_pack([&](int at, float* v) {
    float p[Regs::Width] = {}, k[Regs::Width] = {};
    if (from[1]) Regs::read_pack(from[1] + at, p);
    if (from[2]) Regs::read_pack(from[2] + at, k);
#pragma unroll
    for (int e = 0; e < Regs::Width; ++e) {
      v[e] = v[e] + p[e] + k[e] - first;
      sum += v[e];
    }
  });
  row::normalise<false>(regs, sum, static_cast<const T*>(args.weight), static_cast<const T*>(args.shift), out, 0,
                        args.eps);
}

template <typename T, bool Wide> const char* launch(const EmbeddingLayernormArgs& args, cudaStream_t stream) {
  return row::by_length(args.cols, [&](auto threads, auto each) -> const char* {
    constexpr int tokens = row::ROWS<threads.value>;
    const int64_t blocks = (args.tokens + tokens - 1) / tokens;
    if (blocks > row::MOST_BLOCKS) return "unsupported: more than 2^31 tokens";
    embedding_layernorm_registers<T, threads.value, each.value, Wide>
        <<<unsigned(blocks), threads.value * tokens, 0, stream>>>(args);
    return launch_error();
  });
}
}  // namespace

FUSESCOPE_KERNEL(const EmbeddingLayernormArgs* args, void* stream) {
  if (args->cols > row::MOST_IN_REGISTERS)
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
