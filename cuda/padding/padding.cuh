// Sequences of unequal length: from (batch, seq) rows with padding to packed rows without, and back. Rows are copied as
// bytes.
//
// Lengths are clamped to [0, seq]. Where packed rows are more than the sequences have (total above the sum), those
// beyond are zeros and their index is -1; where they are fewer, what does not fit is left out. Nothing outside a tensor
// is touched in either case.
#pragma once
#include "../common/interface.h"

enum PaddingRequest {
  PADDING_OFFSETS = 0,  // lengths -> offsets (batch + 1) and indices (total)
  PADDING_PACK = 1,     // in (batch * seq rows), indices -> out (total rows)
  PADDING_UNPACK = 2    // in (total rows), offsets -> out (batch * seq rows)
};

struct PaddingArgs {
  int32_t request;
  int32_t wide_lengths;  // lengths are int64 (1) or int32 (0)
  const void* lengths;   // batch
  int32_t* offsets;      // batch + 1: the prefix sums of the lengths, from 0
  int64_t* indices;      // total: of each packed row b * seq + s, or -1
  const void* in;        // row r begins in_row bytes after row r - 1
  void* out;             // dense rows; never aliasing in
  int64_t batch;         // >= 1
  int64_t seq;           // >= 1
  int64_t total;         // >= 0
  int64_t row_bytes;     // >= 1
  int64_t in_row;        // bytes, >= 0
};

#ifdef __CUDACC__
__host__ __device__
#endif
inline int64_t padding_length(const PaddingArgs& args, int64_t b) {
  const int64_t n =
      args.wide_lengths ? static_cast<const int64_t*>(args.lengths)[b] : static_cast<const int32_t*>(args.lengths)[b];
  return n < 0 ? 0 : (n > args.seq ? args.seq : n);
}

// The length of a sequence by its offsets, with no row beyond `total`.
#ifdef __CUDACC__
__host__ __device__
#endif
inline int64_t packed_length(const PaddingArgs& args, int64_t b) {
  const int64_t begin = args.offsets[b], end = args.offsets[b + 1] < args.total ? args.offsets[b + 1] : args.total;
  return begin < 0 || end < begin ? 0 : end - begin;
}
