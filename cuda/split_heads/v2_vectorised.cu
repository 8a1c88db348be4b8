// A thread keeps its column's 16 bytes of bias and the place of its head, and walks down the rows, four loads in flight
// at a time.
#include "../common/row.cuh"
#include "split_heads.cuh"

namespace {
constexpr int THREADS = 256, ROWS = 4;  // rows that a thread loads before it writes

// Thread t has column pack t mod packs and rows t div packs, + groups, + 2 groups, ...
template <typename T, bool Wide>
__global__ void __launch_bounds__(THREADS) split_heads_vectorised(const T* qkv, const T* bias, T* out,
                                                                  SplitHeadsArgs args, int64_t packs, int64_t groups) {
  constexpr int width = Wide ? 16 / int(sizeof(T)) : 1;
  using Regs = row::Registers<T, 32, width, Wide>;  // for its packs
  const int64_t t = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (t >= packs * groups) return;
  const int64_t group = t / packs, at = (t - group * packs) * width, head = at / args.head_dim;
  const HeadPlace place = head_place(head, args.batch, args.seq, args.heads, args.kv_heads, args.head_dim);
  T* to = out + place.begin + at - head * args.head_dim;
  const int64_t sequence = place.heads * args.seq * args.head_dim;  // distance between sequences of this tensor
  float add[width] = {};
  if (bias) Regs::read_pack(bias + at, add);
  const int64_t rows = args.batch * args.seq;
  for (int64_t first = group; first < rows; first += ROWS * groups) {
    float v[ROWS][width];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      const int64_t r = first + i * groups;
      if (r < rows) Regs::read_pack(qkv + r * args.row + at, v[i]);
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      const int64_t r = first + i * groups;
      if (r >= rows) break;
      const int64_t b =
          r <= INT32_MAX && args.seq <= INT32_MAX ? int64_t(unsigned(r) / unsigned(args.seq)) : r / args.seq;
#pragma unroll
      for (int e = 0; e < width; ++e) v[i][e] += add[e];
      Regs::write_pack(to + b * sequence + (r - b * args.seq) * args.head_dim, v[i]);
    }
  }
}

template <typename T, bool Wide> const char* launch(const SplitHeadsArgs& args, cudaStream_t stream) {
  constexpr int width = Wide ? 16 / int(sizeof(T)) : 1;
  const int64_t rows = args.batch * args.seq, packs = (args.heads + 2 * args.kv_heads) * args.head_dim / width;
  // As many threads as fit on the device at once, so that each keeps its bias over many rows; fewer where the work is
  // less.
  const int64_t wanted = int64_t(multiprocessors()) * 2048 / packs;
  const int64_t groups = wanted < 1 ? 1 : (wanted > rows ? rows : wanted);
  const int64_t blocks = (packs * groups + THREADS - 1) / THREADS;
  if (blocks > INT32_MAX) return "unsupported: rows of more than 2^39 elements";
  split_heads_vectorised<T, Wide>
      <<<unsigned(blocks), THREADS, 0, stream>>>(static_cast<const T*>(args.qkv), static_cast<const T*>(args.bias),
                                                 static_cast<T*>(args.out), args, packs, groups);
  return launch_error();
}
}  // namespace

FUSESCOPE_KERNEL(const SplitHeadsArgs* args, void* stream) {
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool wide = aligned(args->bias, 16) && row::wide_rows<T>(args->qkv, args->row, args->out, args->head_dim);
    auto on = static_cast<cudaStream_t>(stream);
    return wide ? launch<T, true>(*args, on) : launch<T, false>(*args, on);
  });
}
