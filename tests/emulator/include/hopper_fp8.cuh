// Stands in for cuda/common/hopper_fp8.cuh: e4m3, its products and bulk copies, from the layouts of the PTX ISA.
#pragma once
#include "hopper.cuh"

#pragma GCC push_options
#pragma GCC optimize("O1")

namespace hopper {

constexpr uint32_t kStepBytes = 32 >> 4;

// Sign, four bits of exponent (bias 7), three of fraction; without infinities, 0x7f is NaN.
inline float e4m3_value(uint8_t byte) {
  const int exponent = byte >> 3 & 15, fraction = byte & 7;
  const float size = (byte & 127) == 127 ? NAN
                     : exponent          ? std::ldexp(8.f + fraction, exponent - 10)
                                         : std::ldexp(float(fraction), -9);
  return byte & 128 ? -size : size;
}
inline uint8_t to_e4m3(float x) {
  if (x != x) return 0x7f;
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  const float size = std::fabs(x);
  if (size >= 448.f) return sign | 0x7e;
  int exponent = -5;
  if (size >= 0x1p-6f) std::frexp(size, &exponent);  // size = f 2^exponent, 1/2 <= f < 1
  const int spacing = exponent - 4;                  // numbers are multiples of 2^spacing there
  const int units = int(std::nearbyint(std::ldexp(size, -spacing)));
  return sign | uint8_t((spacing + 9) * 8 + units);  // 8 units begin the next exponent
}
inline uint32_t pack_e4m3(float x0, float x1, float x2, float x3) {
  return to_e4m3(x0) | to_e4m3(x1) << 8 | to_e4m3(x2) << 16 | uint32_t(to_e4m3(x3)) << 24;
}

template <int RowBytes> uint64_t fp8_descriptor(const void* tile) {
  return (shared_address(tile) & 0x3ffff) >> 4 | uint64_t(8 * RowBytes >> 4) << 32 |
         uint64_t(RowBytes == 128 ? 1 : 2) << 62;
}

inline void load_bytes(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  if (bytes % 16 || shared_address(to) % 16 || reinterpret_cast<uintptr_t>(from) % 16)
    emulator::fail("a bulk copy whose size or address is not a multiple of 16");
  auto copy = [=] {
    std::memcpy(to, from, bytes);
    Barrier& b = barriers.at(barrier);
    b.bytes -= bytes;
    b.check();
  };
  if (emulator::late_copies && !barriers.at(barrier).waiting)
    barriers.at(barrier).late.push_back(copy);
  else
    copy();
}

// A number of a K-major operand, rows one behind the other: bits 4 to 6 of its address are XORed with bits 7 to 9, or
// with rows of 64 bytes bits 4 and 5 with 7 and 8.
inline float fp8_at(uint64_t descriptor, int row, int column) {
  const bool wide = descriptor >> 62 == 1;
  const int row_bytes = wide ? 128 : 64;
  if ((descriptor >> 32 & 0x3fff) != uint64_t(row_bytes / 2)) emulator::fail("groups of eight rows that are apart");
  const uint32_t address = (uint32_t(descriptor & 0x3fff) << 4) + row * row_bytes + column;
  return e4m3_value(*tensor_core::shared_pointer(address ^ (address >> 3 & (wide ? 0x70 : 0x30))));
}

// As Product (hopper.cuh), for 32 columns of A.
struct Product8 {
  int arrived;
  unsigned generation;
  uint64_t a, b;
  float rows[2][64][32];
  Four columns[4][32][34];
};
inline Product8 products8[emulator::kMaxThreads / 128];

template <int N, typename Own, typename Last>
void product8(float (&d)[N], uint64_t a, uint64_t b, bool accumulate, Own own, Last last) {
  Product8& p = products8[emulator::current / 128];
  auto& rows = p.rows[p.generation & 1];
  if (p.arrived == 0)
    p.a = a, p.b = b;
  else if (p.a != a || p.b != b)
    emulator::fail("the warps of a warpgroup issue different products");
  own(rows);
  if (p.arrived == 127) {
    last(rows);
    for (int n = 0; n < 2 * N; ++n)
      for (int k = 0; k < 32; ++k) {
        Four& four = p.columns[n % 8 / 2][k][n / 8];
        four[n % 2] = four[n % 2 + 2] = fp8_at(b, n, k);
      }
  }
  emulator::barrier(p.arrived, 128, p.generation);
  static_assert(N % 4 == 0 && N <= 68);
  Four sums[N / 4] = {};
  if (accumulate) std::memcpy(sums, d, sizeof d);
  const float *upper = rows[first_row()], *lower = rows[first_row() + 8];
  for (int k = 0; k < 32; ++k) {
    const Four both = {upper[k], upper[k], lower[k], lower[k]};
    for (int j = 0; j < N / 4; ++j) sums[j] += both * p.columns[emulator::lane() % 4][k][j];
  }
  std::memcpy(d, sums, sizeof d);
}

// Byte e % 4 of register e / 4 is row g + 8 (e / 4 % 2), column 4 t + e % 4 + 16 (e / 8).
template <int N> void wgmma_fp8(float (&d)[N], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
  const auto own = [&](auto& rows) {
    for (int e = 0; e < 16; ++e)
      rows[first_row() + 8 * (e / 4 % 2)][4 * (emulator::lane() % 4) + e % 4 + 16 * (e / 8)] =
          e4m3_value(uint8_t(a[e / 4] >> 8 * (e % 4)));
  };
  product8(d, 0, b, accumulate, own, [](auto&) {});
}
inline void wgmma_fp8(float (&d)[32], uint64_t a, uint64_t b, bool accumulate) {
  const auto last = [&](auto& rows) {
    for (int row = 0; row < 64; ++row)
      for (int k = 0; k < 32; ++k) rows[row][k] = fp8_at(a, row, k);
  };
  product8(d, a, b, accumulate, [](auto&) {}, last);
}

// Byte e % 4 of register e / 4 of B is row 4 t + e % 4 + 16 (e / 4), column g; A and C as above and in mma.cuh.
inline void mma_e4m3_m16n8k32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const struct {
    const uint32_t *a, *b;
  } given{a, b};
  emulator::at_once(d, &given, [](auto& operands) {
    float rows[16][32], columns[32][8];
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4;
      const auto& from = *static_cast<decltype(&given)>(operands[lane][1]);
      for (int e = 0; e < 16; ++e)
        rows[g + 8 * (e / 4 % 2)][4 * t + e % 4 + 16 * (e / 8)] = e4m3_value(uint8_t(from.a[e / 4] >> 8 * (e % 4)));
      for (int e = 0; e < 8; ++e)
        columns[4 * t + e % 4 + 16 * (e / 4)][g] = e4m3_value(uint8_t(from.b[e / 4] >> 8 * (e % 4)));
    }
    for (int lane = 0; lane < 32; ++lane) {
      float* to = static_cast<float*>(const_cast<void*>(operands[lane][0]));
      for (int e = 0; e < 4; ++e)
        for (int k = 0; k < 32; ++k) to[e] += rows[lane / 4 + 8 * (e / 2)][k] * columns[k][2 * (lane % 4) + e % 2];
    }
  });
}

}  // namespace hopper

#pragma GCC pop_options
