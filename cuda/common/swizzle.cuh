// XOR swizzle of a shared-memory tile, so that ldmatrix reads eight rows of one chunk column without bank conflicts.
//
// A tile is rows of RowBytes bytes (a power of two of at least 64), cut into 16-byte chunks. Shared memory serves 128
// bytes a cycle, so eight chunks are read at once if they are in eight different 16-byte columns of a 128-byte
// line. Unswizzled, eight rows of one chunk column are all in the same one; moving chunk c of row r to c ^ (r mod 8)
// spreads them. With 64-byte rows two rows share a line, and the row number is halved first. No memory is spent on
// padding, and addresses stay 16-aligned.
#pragma once
#include <stdint.h>

#if defined(__CUDACC__)
#define SWIZZLE_FUNCTION __host__ __device__ __forceinline__
#else
#define SWIZZLE_FUNCTION inline  // the index arithmetic is also tested by a plain C++ compiler
#endif

// Byte offset within the tile of 16-byte chunk `chunk` of row `row`.
template <int RowBytes> SWIZZLE_FUNCTION uint32_t swizzled(uint32_t row, uint32_t chunk) {
  static_assert(RowBytes >= 64 && (RowBytes & (RowBytes - 1)) == 0, "rows are a power of two of at least 64 bytes");
  constexpr uint32_t chunks = RowBytes / 16;
  constexpr uint32_t rows_a_line = RowBytes >= 128 ? 1 : 128 / RowBytes;
  constexpr uint32_t mask = chunks < 8 ? chunks - 1 : 7;
  return row * RowBytes + ((chunk ^ ((row / rows_a_line) & mask)) << 4);
}
