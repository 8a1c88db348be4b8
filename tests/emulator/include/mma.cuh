// Stands in for cuda/common/mma.cuh: the same functions, written out element by element from the layouts of the PTX
// ISA.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

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

// Element e (0 ... 7) of A lies in register e / 2 at row g + 8 (e / 2 % 2) and column 2t + e % 2 + 8 (e / 4); element e
// (0 ... 3) of B in register e / 2 at row 2t + e % 2 + 8 (e / 2) and column g; element e of C at row g + 8 (e / 2),
// column 2t + e % 2.
template <typename T> void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulator::Warp& w = emulator::warp();
  const int g = emulator::lane() / 4, t = emulator::lane() % 4;
  for (int e = 0; e < 8; ++e) w.a[g + 8 * (e / 2 % 2)][2 * t + e % 2 + 8 * (e / 4)] = element<T>(a[e / 2], e % 2);
  for (int e = 0; e < 4; ++e) w.b[g][2 * t + e % 2 + 8 * (e / 2)] = element<T>(b[e / 2], e % 2);
  emulator::warp_barrier();
  for (int e = 0; e < 4; ++e) {
    const float *row = w.a[g + 8 * (e / 2)], *column = w.b[2 * t + e % 2];
    float sum = 0.0f;
    for (int k = 0; k < 16; ++k) sum += row[k] * column[k];
    d[e] += sum;
  }
  emulator::warp_barrier();
}

// Lane i gives the address of row i % 8 of matrix i / 8. Rows of a matrix that share a 16-byte column of the banks are
// counted.
template <int Count> void load_matrices(uint32_t (&r)[Count], uint32_t address, bool transposed) {
  if (emulator::lane() < 8 * Count && address % 16)
    emulator::fail("ldmatrix from an address that is not a multiple of 16");
  emulator::together(address, [&](auto of) {
    const int row = emulator::lane() / 4, col = emulator::lane() % 4 * 2;
    for (int i = 0; i < Count; ++i) {
      uint16_t pair[2];
      for (int e = 0; e < 2; ++e) {
        const int from_row = transposed ? col + e : row, from_col = transposed ? row : col + e;
        std::memcpy(&pair[e], shared_pointer(of(8 * i + from_row)) + 2 * from_col, 2);
      }
      r[i] = pair[0] | uint32_t(pair[1]) << 16;
      if (emulator::lane() == 0) {
        unsigned seen = 0;
        for (int j = 0; j < 8; ++j) {
          const unsigned column = 1u << of(8 * i + j) / 16 % 8;
          emulator::bank_conflicts += (seen & column) != 0;
          seen |= column;
        }
      }
    }
    return 0;
  });
}
inline void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) { load_matrices<4>(r, address, false); }
inline void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address) { load_matrices<4>(r, address, true); }
inline void ldmatrix_x2(uint32_t (&r)[2], uint32_t address) { load_matrices<2>(r, address, false); }
inline void ldmatrix_x2_trans(uint32_t (&r)[2], uint32_t address) { load_matrices<2>(r, address, true); }

// The other way round, and those that lie in the same column of the banks are counted too.
inline void store_matrices(uint32_t address, const uint32_t (&r)[4]) {
  if (address % 16) emulator::fail("stmatrix to an address that is not a multiple of 16");
  emulator::together(address, [&](auto of) {
    for (int i = 0; i < 4; ++i) {
      std::memcpy(shared_pointer(of(8 * i + emulator::lane() / 4)) + 4 * (emulator::lane() % 4), &r[i], 4);
      unsigned seen = 0;
      for (int j = 0; j < 8 && emulator::lane() == 0; ++j) {
        const unsigned column = 1u << of(8 * i + j) / 16 % 8;
        emulator::bank_conflicts += (seen & column) != 0;
        seen |= column;
      }
    }
    return 0;
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
