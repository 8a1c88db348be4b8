// Stands in for cuda/common/mma.cuh: the same functions, written out element by element from the layouts of the PTX
// ISA.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#pragma GCC push_options
#pragma GCC optimize("O1")

namespace tensor_core {

inline uint32_t shared_address(const void* p) {
  return uint32_t(static_cast<const unsigned char*>(p) -
                  emulator::dynamic_memory);  // modulo 2^32, also for static arrays
}
inline unsigned char* shared_pointer(uint32_t address) { return emulator::dynamic_memory + int32_t(address); }

inline float to_fp32(__half h) { return __half2float(h); }
inline float to_fp32(__nv_bfloat16 h) { return __bfloat162float(h); }

template <typename T> float element(uint32_t word, int which) {
  T value;
  const uint16_t bits = uint16_t(word >> 16 * which);
  std::memcpy(&value, &bits, 2);
  return to_fp32(value);
}

using Vector = float __attribute__((vector_size(32)));  // eight columns

// Element e (0 ... 7) of A lies in register e / 2 at row g + 8 (e / 2 % 2) and column 2t + e % 2 + 8 (e / 4); element e
// (0 ... 3) of B in register e / 2 at row 2t + e % 2 + 8 (e / 2) and column g; element e of C at row g + 8 (e / 2),
// column 2t + e % 2.
template <typename T> void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const struct {
    const uint32_t *a, *b;
  } given{a, b};
  emulator::at_once(d, &given, [](auto& operands) {
    float rows[16][16];
    Vector columns[16], sums[16] = {};
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4;
      const auto& from = *static_cast<decltype(&given)>(operands[lane][1]);
      for (int e = 0; e < 8; ++e)
        rows[g + 8 * (e / 2 % 2)][2 * t + e % 2 + 8 * (e / 4)] = element<T>(from.a[e / 2], e % 2);
      for (int e = 0; e < 4; ++e) columns[2 * t + e % 2 + 8 * (e / 2)][g] = element<T>(from.b[e / 2], e % 2);
    }
    for (int row = 0; row < 16; ++row)
      for (int k = 0; k < 16; ++k) sums[row] += rows[row][k] * columns[k];
    for (int lane = 0; lane < 32; ++lane) {
      float* to = static_cast<float*>(const_cast<void*>(operands[lane][0]));
      for (int e = 0; e < 4; ++e) to[e] += sums[lane / 4 + 8 * (e / 2)][2 * (lane % 4) + e % 2];
    }
  });
}

// Lane i gives the address of row i % 8 of matrix i / 8.
template <int Count> void load_matrices(uint32_t (&r)[Count], uint32_t address, bool transposed) {
  if (emulator::lane() < 8 * Count && address % 16)
    emulator::fail("ldmatrix from an address that is not a multiple of 16");
  emulator::at_once(r, &address, [=](auto& operands) {
    for (int i = 0; i < Count; ++i) {
      uint16_t matrix[8][8];
      for (int row = 0; row < 8; ++row)
        std::memcpy(matrix[row], shared_pointer(*static_cast<const uint32_t*>(operands[8 * i + row][1])), 16);
      for (int lane = 0; lane < 32; ++lane) {
        const int row = lane / 4, col = lane % 4 * 2;
        const uint16_t low = transposed ? matrix[col][row] : matrix[row][col];
        const uint16_t high = transposed ? matrix[col + 1][row] : matrix[row][col + 1];
        static_cast<uint32_t*>(const_cast<void*>(operands[lane][0]))[i] = low | uint32_t(high) << 16;
      }
    }
  });
}
inline void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) { load_matrices<4>(r, address, false); }
inline void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address) { load_matrices<4>(r, address, true); }
inline void ldmatrix_x2(uint32_t (&r)[2], uint32_t address) { load_matrices<2>(r, address, false); }
inline void ldmatrix_x2_trans(uint32_t (&r)[2], uint32_t address) { load_matrices<2>(r, address, true); }

// The other way round.
inline void store_matrices(uint32_t address, const uint32_t (&r)[4]) {
  if (address % 16) emulator::fail("stmatrix to an address that is not a multiple of 16");
  emulator::at_once(r, &address, [](auto& operands) {
    for (int i = 0; i < 4; ++i)
      for (int lane = 0; lane < 32; ++lane) {
        unsigned char* row = shared_pointer(*static_cast<const uint32_t*>(operands[8 * i + lane / 4][1]));
        std::memcpy(row + 4 * (lane % 4), static_cast<const uint32_t*>(operands[lane][0]) + i, 4);
      }
  });
}

template <typename T> uint32_t pack(float low, float high);
template <> inline uint32_t pack<__half>(float low, float high) {
  return __float2half_rn(low).bits | uint32_t(__float2half_rn(high).bits) << 16;
}
template <> inline uint32_t pack<__nv_bfloat16>(float low, float high) {
  return __float2bfloat16_rn(low).bits | uint32_t(__float2bfloat16_rn(high).bits) << 16;
}

}  // namespace tensor_core

#pragma GCC pop_options
