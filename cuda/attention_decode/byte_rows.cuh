// Units of an fp8 cache in shared memory: 16 keys or values of one head, a byte per element.
//
// A unit of Width columns lies as one of Width / 2 16-bit columns does (units.cuh): ldmatrix moves pairs of bytes.
#pragma once
#include "../common/e4m3.cuh"
#include "stream.cuh"

namespace decode {
// As load_rows. The last 16 bytes of a row may have 8 columns beyond head_dim, which are not read.
template <int Width> __device__ __forceinline__ void load_byte_rows(char* unit, const E4m3* from, int64_t row_stride,
                                                                    int64_t column_stride, int begin, int end,
                                                                    int head_dim, bool vectors) {
  constexpr int chunks = Width / 16;
  static_assert(32 % chunks == 0);  // a lane stays in its column
  const int lane = threadIdx.x % 32;
  if (vectors) {
    constexpr int rows = 32 / chunks;
    const int row = lane / chunks, c = lane % chunks;
    const unsigned live = 16 * c < head_dim && end > begin ? unsigned(end - begin) : 0;
    const int bytes = head_dim - 16 * c < 16 ? head_dim - 16 * c : 16;
    const E4m3* source = from + row * row_stride + 16 * c;
    const uint32_t to = tensor_core::shared_address(unit);
#pragma unroll
    for (int r = 0; r < kUnitKeys; r += rows, source += rows * row_stride)
      async_copy::copy16_partial(to + place<Width / 2>(r + row, c), source,
                                 unsigned(r + row - begin) < live ? bytes : 0);
  } else {
#pragma unroll 1
    for (int index = lane; index < kUnitKeys * chunks; index += 32) {
      const int r = index / chunks, c = index % chunks;
      const bool live = r >= begin && r < end;
      alignas(16) E4m3 sixteen[16];
#pragma unroll
      for (int e = 0; e < 16; ++e)
        sixteen[e] = live && 16 * c + e < head_dim ? from[r * row_stride + (16 * c + e) * column_stride] : E4m3{0};
      *reinterpret_cast<uint4*>(unit + place<Width / 2>(r, c)) = *reinterpret_cast<uint4*>(sixteen);
    }
  }
}

// Whether a unit holds a NaN; the same in all lanes.
template <int Width> __device__ __forceinline__ bool holds_nan(const char* unit) {
  bool found = false;
#pragma unroll 1
  for (int at = threadIdx.x % 32 * 16; at < kUnitKeys * Width; at += 32 * 16) {
    const uint4 bytes = *reinterpret_cast<const uint4*>(unit + at);
    for (const uint32_t four : {bytes.x, bytes.y, bytes.z, bytes.w})
      found = found || (((four & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u) != 0;
  }
  return __any_sync(kAll, found);
}
}  // namespace decode
