// One warp per query row: 8 lanes per key, four keys at once, online softmax in registers, shuffles only, no block
// barrier.
// takes: softcap+sinks score
// tiles: none
//
// The loop over keys is in row_loop.cuh. In a partial tile it visits the set bits of the mask bitmap, so the work grows
// with live keys, not tiles: this makes it the kernel for very sparse rows and very short sequences.
#include "row_loop.cuh"

namespace {
constexpr int kWarps = 4;  // rows per block

struct ScoredArgs : AttentionArgs {
  AttentionScored scored;
  bool vectors;
};

template <typename T, int Chunks, int Unroll, bool Scored>
__device__ __forceinline__ void attend(const AttentionArgs& a, const AttentionScored& scored, bool vectors) {
  const int64_t item = int64_t(blockIdx.x) * kWarps + (threadIdx.x >> 5);
  if (item >= int64_t(a.batch) * a.heads * a.seq_q) return;  // uniform per warp; there is no block barrier
  const int row = int(item % a.seq_q), head = int(item / a.seq_q % a.heads), b = int(item / a.seq_q / a.heads);
  row_loop::attend_row<T, Chunks, Unroll, Scored>(a, scored, b, head, row, a.seq_k, vectors);
}

constexpr int blocks_per_sm(int chunks) { return chunks == 1 ? 4 : chunks == 2 ? 3 : 2; }

template <typename T, int Chunks, bool Vector, int Unroll>
__global__ void __launch_bounds__(32 * kWarps, blocks_per_sm(Chunks)) attention_rowwise(const AttentionArgs a) {
  attend<T, Chunks, Unroll, false>(a, {}, Vector);
}

// With a bias, softcap, expression or sinks; whether loads are of 16 bytes is seen at run time, else the kernels would
// be twice as many.
template <typename T, int Chunks>
__global__ void __launch_bounds__(32 * kWarps, blocks_per_sm(Chunks)) attention_scored(const ScoredArgs a) {
  attend<T, Chunks, Chunks == 1 ? 2 : 1, true>(a, a.scored, a.vectors);
}

int64_t blocks_of(const AttentionArgs& a) { return (int64_t(a.batch) * a.heads * a.seq_q + kWarps - 1) / kWarps; }

template <typename T, int Chunks, int Unroll> void launch(const AttentionArgs& a, unsigned grid, cudaStream_t stream) {
  if (vectors_of(a, sizeof(T)) == 7) {
    attention_rowwise<T, Chunks, true, Unroll><<<grid, 32 * kWarps, 0, stream>>>(a);
  } else {
    attention_rowwise<T, Chunks, false, Unroll><<<grid, 32 * kWarps, 0, stream>>>(a);
  }
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionArgs* args, void* stream_) {
  const AttentionArgs& a = *args;
  const int64_t grid = blocks_of(a);
  if (grid > INT32_MAX) return "unsupported: more than 2^33 query rows";
  if (const char* why = refused_by_expression(a)) return why;
  const AttentionScored scored = take_scored(a);
  auto stream = static_cast<cudaStream_t>(stream_);
  return dispatch(a.dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    return with_width<64, 128, 192, 256>(a.head_dim, [&](auto width) -> const char* {
      if constexpr (!is_built<T, width>()) {
        return kOtherBuild;
      } else {
        if constexpr (!kExpressed) {
          if (!a.bias && !scored.given()) {
            launch<T, width / 64, width == 64 ? 4 : width == 128 ? 2 : 1>(a, unsigned(grid), stream);
            return launch_error();
          }
        }
        const ScoredArgs with{a, scored, vectors_of(a, sizeof(T)) == 7};
        attention_scored<T, width / 64><<<unsigned(grid), 32 * kWarps, 0, stream>>>(with);
        return launch_error();
      }
    });
  });
}
