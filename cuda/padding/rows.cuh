// Where a row comes from, as a row number of `in`, or -1 for zeros: what both kernels of the family share.
#pragma once
#include "../common/device.cuh"
#include "../common/launch.cuh"
#include "padding.cuh"

namespace {
__device__ __forceinline__ int64_t source_of(const PaddingArgs& args, int64_t r) {
  if (args.request == PADDING_PACK) {
    const int64_t from = args.indices[r];
    return from < args.batch * args.seq ? from : -1;
  }
  const int64_t b = r / args.seq, s = r - b * args.seq;
  return s < packed_length(args, b) ? args.offsets[b] + s : int64_t(-1);
}

inline int64_t rows_of(const PaddingArgs& args) {
  return args.request == PADDING_PACK ? args.total : args.batch * args.seq;
}

// Calls body with a value of the widest type, up to `most` bytes, of which rows are aligned multiples.
template <typename Body> const char* by_word(const PaddingArgs& args, int64_t most, Body body) {
  auto fits = [&](int64_t bytes) {
    return bytes <= most && args.row_bytes % bytes == 0 && args.in_row % bytes == 0 && aligned(args.in, int(bytes)) &&
           aligned(args.out, int(bytes));
  };
  if (fits(16)) return body(uint4{});
  if (fits(8)) return body(uint2{});
  if (fits(4)) return body(uint32_t{});
  if (fits(2)) return body(uint16_t{});
  return body(uint8_t{});
}
}  // namespace
