// 16-byte loads, a warp or more per row, four rows in flight; prefix sums in one launch, each block summing what is
// before it.
#include "../common/reduce.cuh"
#include "rows.cuh"

namespace {
constexpr int THREADS = 256, ROWS = 4;  // rows that a group of threads loads before it writes

// Adds up lengths[first], lengths[first + 1], ... before `last` over the block; every thread gets the sum.
__device__ __forceinline__ int64_t sum_of_lengths(const PaddingArgs& args, int64_t first, int64_t last) {
  __shared__ int32_t part[THREADS / 32];
  int32_t sum = 0;
  for (int64_t b = first + threadIdx.x; b < last; b += THREADS) sum += int32_t(padding_length(args, b));
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  __syncthreads();  // an earlier sum has been read
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  int64_t total = 0;
#pragma unroll
  for (int w = 0; w < THREADS / 32; ++w) total += part[w];
  return total;
}

// Block i has sequences i * each to (i + 1) * each.
__global__ void __launch_bounds__(THREADS) padding_offsets(PaddingArgs args, int64_t each) {
  const int64_t first = int64_t(blockIdx.x) * each, last = first + each < args.batch ? first + each : args.batch;
  int64_t begin = sum_of_lengths(args, 0, first);
  if (first == 0 && threadIdx.x == 0) args.offsets[0] = 0;
  for (int64_t b = first; b < last; ++b) {
    const int64_t length = padding_length(args, b);
    for (int64_t s = threadIdx.x; s < length && begin + s < args.total; s += THREADS)
      args.indices[begin + s] = b * args.seq + s;
    begin += length;
    if (threadIdx.x == 0) args.offsets[b + 1] = int32_t(begin);
  }
  if (last == args.batch)
    for (int64_t r = begin + threadIdx.x; r < args.total; r += THREADS) args.indices[r] = -1;
}

// Groups of `lanes` threads have a row each, ROWS rows one after the other in flight.
template <typename Word>
__global__ void __launch_bounds__(THREADS) padding_rows(PaddingArgs args, int64_t words, int64_t rows, int lanes) {
  const int64_t first = (int64_t(blockIdx.x) * THREADS + threadIdx.x) / lanes * ROWS;
  int64_t from[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; ++i) from[i] = first + i < rows ? source_of(args, first + i) : -1;
  for (int64_t at = threadIdx.x % lanes; at < words; at += lanes) {
    Word value[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      value[i] = Word{};
      if (from[i] >= 0)
        value[i] = reinterpret_cast<const Word*>(static_cast<const char*>(args.in) + from[i] * args.in_row)[at];
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
      if (first + i < rows) static_cast<Word*>(args.out)[(first + i) * words + at] = value[i];
  }
}
}  // namespace

FUSESCOPE_KERNEL(const PaddingArgs* args, void* stream) {
  auto on = static_cast<cudaStream_t>(stream);
  if (args->request == PADDING_OFFSETS) {
    // Each block reads all lengths before its own: with 1024 blocks at most that stays cheap.
    const int64_t each = (args->batch + 1023) / 1024, blocks = (args->batch + each - 1) / each;
    padding_offsets<<<unsigned(blocks), THREADS, 0, on>>>(*args, each);
    return launch_error();
  }
  return by_word(*args, 16, [&](auto zero) -> const char* {
    using Word = decltype(zero);
    const int64_t words = args->row_bytes / int64_t(sizeof(Word)), rows = rows_of(*args);
    int lanes = 1;  // a power of two, so that groups do not cross blocks
    while (lanes < words && lanes < THREADS) lanes *= 2;
    const int64_t groups = (rows + ROWS - 1) / ROWS, blocks = (groups * lanes + THREADS - 1) / THREADS;
    if (blocks > INT32_MAX) return "unsupported: more than 2^31 blocks of rows";
    padding_rows<Word><<<unsigned(blocks), THREADS, 0, on>>>(*args, words, rows, lanes);
    return launch_error();
  });
}
