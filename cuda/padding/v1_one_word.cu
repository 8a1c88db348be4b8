// One word of up to 4 bytes per thread, its row by a division; one thread sums the lengths, then one block per sequence
// numbers its rows.
#include "rows.cuh"

namespace {
constexpr int THREADS = 256;

__global__ void __launch_bounds__(32) padding_sum(PaddingArgs args) {
  if (threadIdx.x) return;
  int64_t sum = 0;
  args.offsets[0] = 0;
  for (int64_t b = 0; b < args.batch; ++b) {
    sum += padding_length(args, b);
    args.offsets[b + 1] = int32_t(sum);
  }
}

__global__ void __launch_bounds__(THREADS) padding_number(PaddingArgs args) {
  const int64_t b = blockIdx.x, length = padding_length(args, b), begin = args.offsets[b];
  for (int64_t s = threadIdx.x; s < length && begin + s < args.total; s += THREADS)
    args.indices[begin + s] = b * args.seq + s;
  if (b == args.batch - 1)
    for (int64_t r = begin + length + threadIdx.x; r < args.total; r += THREADS) args.indices[r] = -1;
}

template <typename Word>
__global__ void __launch_bounds__(THREADS) padding_one_word(PaddingArgs args, int64_t words, int64_t count) {
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= count) return;
  const int64_t r = i / words, at = i - r * words, from = source_of(args, r);
  Word value{};
  if (from >= 0) value = reinterpret_cast<const Word*>(static_cast<const char*>(args.in) + from * args.in_row)[at];
  static_cast<Word*>(args.out)[i] = value;
}
}  // namespace

FUSESCOPE_KERNEL(const PaddingArgs* args, void* stream) {
  auto on = static_cast<cudaStream_t>(stream);
  if (args->request == PADDING_OFFSETS) {
    padding_sum<<<1, 32, 0, on>>>(*args);
    padding_number<<<unsigned(args->batch), THREADS, 0, on>>>(*args);
    return launch_error();
  }
  return by_word(*args, 4, [&](auto zero) -> const char* {
    using Word = decltype(zero);
    const int64_t words = args->row_bytes / int64_t(sizeof(Word)), count = rows_of(*args) * words;
    const int64_t blocks = (count + THREADS - 1) / THREADS;
    if (blocks > INT32_MAX) return "unsupported: more than 2^39 words";
    padding_one_word<Word><<<unsigned(blocks), THREADS, 0, on>>>(*args, words, count);
    return launch_error();
  });
}
