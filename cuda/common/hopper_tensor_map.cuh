// Tensor maps for TMA, encoded by the driver on the host and cached by the tensor's address and layout.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include <cstring>

namespace hopper {
// cuTensorMapEncodeTiled, found through the runtime so that a machine without a driver can load this library; nullptr
// without one.
using EncodeTiled = decltype(&cuTensorMapEncodeTiled);
inline EncodeTiled encode_tiled() {
  static EncodeTiled found = [] {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult result;
    cudaError_t status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address, 12000, cudaEnableDefault, &result);
    return status == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<EncodeTiled>(address)
                                                                          : nullptr;
  }();
  return found;
}

// Encodes the map of a tensor of 16-bit elements, dimensions outermost first, for boxes of rows of a tile. nullptr when
// good, else what TMA lacks.
template <int Rank> const char* encode_map(CUtensorMap* map, bool bfloat16, const void* data,
                                           const int64_t (&sizes)[Rank], const int64_t (&strides)[Rank],
                                           const int64_t (&box)[Rank]) {
  if (reinterpret_cast<uintptr_t>(data) % 16) return "unsupported: an address that is not a multiple of 16 bytes (TMA)";
  if (strides[Rank - 1] != 1) return "unsupported: a last dimension that is not contiguous (TMA)";
  cuuint64_t extent[Rank], pitch[Rank - 1];
  cuuint32_t sides[Rank], step[Rank];
  for (int i = 0; i < Rank; ++i) {
    extent[i] = cuuint64_t(sizes[Rank - 1 - i]);
    sides[i] = cuuint32_t(box[Rank - 1 - i]);
    step[i] = 1;
  }
  for (int i = 0; i < Rank - 1; ++i) {
    // A dimension of one element has no meaningful stride; TMA still wants a legal one.
    int64_t bytes = sizes[Rank - 2 - i] == 1 ? 16 : strides[Rank - 2 - i] * 2;
    if (bytes % 16 || bytes <= 0) return "unsupported: strides that are not positive multiples of 16 bytes (TMA)";
    pitch[i] = cuuint64_t(bytes);
  }
  EncodeTiled encode = encode_tiled();
  if (!encode) return "no cuTensorMapEncodeTiled in this driver";
  CUresult status =
      encode(map, bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, Rank,
             const_cast<void*>(data), extent, pitch, sides, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return status == CUDA_SUCCESS ? nullptr : "cuTensorMapEncodeTiled refused the tensor";
}

// The same from a cache per thread: a map depends on the tensor's address and layout alone, and the driver takes about
// a microsecond to encode one. Loops reuse their buffers, so a direct-mapped cache is enough.
template <int Rank> const char* cached_map(CUtensorMap* map, bool bfloat16, const void* data,
                                           const int64_t (&sizes)[Rank], const int64_t (&strides)[Rank],
                                           const int64_t (&box)[Rank]) {
  struct Slot {
    int64_t key[2 + 3 * Rank];
    CUtensorMap map;
  };
  constexpr int slots = 64;
  thread_local Slot cache[slots] = {};  // a key of zeros matches no tensor: sizes are at least 1
  int64_t key[2 + 3 * Rank] = {int64_t(reinterpret_cast<uintptr_t>(data)), bfloat16};
  memcpy(key + 2, sizes, sizeof sizes);
  memcpy(key + 2 + Rank, strides, sizeof strides);
  memcpy(key + 2 + 2 * Rank, box, sizeof box);
  uint64_t hash = 0;
  for (int64_t word : key) hash = (hash ^ uint64_t(word)) * 0x9e3779b97f4a7c15ull;
  Slot& slot = cache[hash >> 58];
  static_assert(slots == 64);  // the top six bits
  if (memcmp(slot.key, key, sizeof key) != 0) {
    if (const char* why = encode_map(&slot.map, bfloat16, data, sizes, strides, box)) {
      slot.key[2] = 0;
      return why;
    }
    memcpy(slot.key, key, sizeof key);
  }
  *map = slot.map;
  return nullptr;
}

// The map of a tensor (batch, head, row, column) for tiles of 64 rows and 64 columns.
inline const char* make_map(CUtensorMap* map, bool bfloat16, const void* data, const int64_t (&sizes)[4],
                            const int64_t (&strides)[4]) {
  return cached_map(map, bfloat16, data, sizes, strides, {1, 1, 64, 64});
}

// The same in strided-permuted order (mod `modulus`, a divisor of the rows): dimensions (batch, head, residue, index,
// column), where row index * modulus + residue is at position residue * length + index, length = rows / modulus. A box
// is 64 positions or a divisor of that: part of one residue class, or several whole ones where they are shorter. With
// modulus 1 the order is unchanged and any number of rows is allowed.
inline const char* make_ordered_map(CUtensorMap* map, bool bfloat16, const void* data, const int64_t (&sizes)[4],
                                    const int64_t (&strides)[4], int64_t modulus, int64_t rows = 64) {
  const int64_t length = sizes[2] / modulus, side = modulus == 1 || length > rows ? rows : length;
  return cached_map<5>(map, bfloat16, data, {sizes[0], sizes[1], modulus, length, sizes[3]},
                       {strides[0], strides[1], strides[2], modulus * strides[2], strides[3]},
                       {1, 1, rows / side, side, 64});
}
}  // namespace hopper
