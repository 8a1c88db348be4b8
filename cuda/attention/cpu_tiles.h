// Tiles of 64 keys on the CPU, as attention and packed attention use them, for four rows of queries at a time.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "../common/cpu_block.h"
#include "../common/cpu_softmax.h"

namespace cpu_tiles {
using namespace cpu_block;
using fusescope_cpu::kNone;
constexpr int kTile = 64, kRows = 4, kWidest = 256;
constexpr float kLog2e = 1.4426950408889634f;
constexpr int kSum = 32;  // products summed at a time: sums of short sums round less

// 2^x for x <= 0 or -inf: 2^floor(x) by the exponent bits times a polynomial fitted on the fraction; relative error
// 2e-7.
inline float exp2_negative(float x) {
  const float kept = x < -126.f ? -126.f : x;
  const float whole = std::floor(kept), f = kept - whole - 0.5f;  // f in [-0.5, 0.5): 2^(f + 0.5)
  float p = 2.170225482e-4f;
  p = p * f + 1.895036446e-3f;
  p = p * f + 1.360259754e-2f;
  p = p * f + 7.849350232e-2f;
  p = p * f + 3.397315304e-1f;
  p = p * f + 9.802581791e-1f;
  p = p * f + 1.414213563e+0f;
  const int32_t bits = (int32_t(whole) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, 4);
  return x < -126.f ? 0.f : p * power;
}
inline float exp_negative(float x) { return exp2_negative(x * kLog2e); }

// Up to 64 rows of a head: element (j, d) is base[j * row + d * column].
template <typename T> struct Rows {
  const T* base;
  int64_t row, column;
  int count;
};

using Order = std::array<int, kTile>;  // the row at each position of a tile
constexpr Order kUnchanged = [] {
  Order order{};
  for (int p = 0; p < kTile; ++p) order[p] = p;
  return order;
}();

// to[p][d] = factor * element (order[p], d) as fp32, in rows of `width`; zeros beyond the rows and columns.
template <typename T>
void pack_rows(const Rows<T>& from, const Order& order, int head_dim, int width, float factor, float* to) {
  std::fill_n(to, kTile * width, 0.f);
  for (int p = 0; p < kTile; ++p)
    if (const int64_t j = order[p]; j < from.count)
      for (int d = 0; d < head_dim; ++d)
        to[p * width + d] = to_float(from.base[j * from.row + d * from.column]) * factor;
}

// to[d][p] = element (order[p], d), in rows of 64; zeros beyond the rows.
template <typename T> void pack_columns(const Rows<T>& from, const Order& order, int head_dim, float* to) {
  std::fill_n(to, kTile * head_dim, 0.f);
  for (int p = 0; p < kTile; ++p)
    if (const int64_t j = order[p]; j < from.count)
      for (int d = 0; d < head_dim; ++d) to[d * kTile + p] = to_float(from.base[j * from.row + d * from.column]);
}

// Whether a packed tile has neither an infinity nor a NaN.
inline bool all_finite(const float* rows, int width) {
  Block zeros = {};
  for (int i = 0; i < kTile * width; i += SIZE) zeros += load(rows + i) * 0.f;  // NaN where one is not finite
  return total(zeros) == 0.f;
}

// s[r][16 c ...] = sum over d of q[r][d] keys[d][16 c ...] for kRows rows and `Count` blocks of keys. keys and s have
// rows of 64, q of `width` floats.
template <int Count> void score_blocks(const float* q, const float* keys, float* s, int head_dim, int width) {
  if constexpr (Count > FOUR_ROWS) {
    score_blocks<FOUR_ROWS>(q, keys, s, head_dim, width);
    return score_blocks<Count - FOUR_ROWS>(q, keys + FOUR_ROWS * SIZE, s + FOUR_ROWS * SIZE, head_dim, width);
  }
  for (int begin = 0; begin < head_dim; begin += kSum) {
    Block sum[kRows][Count] = {};
    const int end = std::min(head_dim, begin + kSum);
    for (int d = begin; d < end; ++d) {
      Block key[Count];
      for (int c = 0; c < Count; ++c) key[c] = load(keys + d * kTile + c * SIZE);
      for (int r = 0; r < kRows; ++r)
        for (int c = 0; c < Count; ++c) sum[r][c] += q[r * width + d] * key[c];
    }
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < Count; ++c) {
        float* to = s + r * kTile + c * SIZE;
        store(to, begin ? load(to) + sum[r][c] : sum[r][c]);
      }
  }
}

// o[r] = o[r] shrink[r] + sum over the keys j in [from, to) of p[r][j] v[j], for kRows rows and `Count` blocks of
// columns. p has rows of 64, v and o of `width` floats.
template <int Count>
void add_values(const float* p, const float* v, float* o, const float* shrink, int from, int to, int width) {
  if constexpr (Count > FOUR_ROWS) {
    add_values<FOUR_ROWS>(p, v, o, shrink, from, to, width);
    constexpr int done = FOUR_ROWS * SIZE;
    return add_values<Count - FOUR_ROWS>(p, v + done, o + done, shrink, from, to, width);
  }
  Block sum[kRows][Count];
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < Count; ++c) sum[r][c] = load(o + r * width + c * SIZE) * shrink[r];
  for (int j = from; j < to; ++j) {
    Block value[Count];
    for (int c = 0; c < Count; ++c) value[c] = load(v + j * width + c * SIZE);
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < Count; ++c) sum[r][c] += p[r * kTile + j] * value[c];
  }
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < Count; ++c) store(o + r * width + c * SIZE, sum[r][c]);
}

// The same for one row and a list of keys: o = o shrink + sum over i of p[i] v[key[i]], over all columns.
inline void add_listed_values(const float* p, const int* key, int keys, const float* v, float* o, float shrink,
                              int width) {
  over_columns(width, [&](auto blocks, int64_t d) {
    constexpr int Count = decltype(blocks)::value;
    Block sum[Count];
    for (int c = 0; c < Count; ++c) sum[c] = load(o + d + c * SIZE) * shrink;
    for (int i = 0; i < keys; ++i)
      for (int c = 0; c < Count; ++c) sum[c] += p[i] * load(v + int64_t(key[i]) * width + d + c * SIZE);
    for (int c = 0; c < Count; ++c) store(o + d + c * SIZE, sum[c]);
  });
}

// Online softmax of kRows rows over the keys [from, to) of a tile: scores s become weights (Exp: e^x or 2^x of negative
// x), and o, maximum and sum include them. A key with a score of -inf is masked: it adds nothing, whatever its row of V
// holds.
//
// As 0 times infinity is NaN, a tile with a row of V that is not finite is done key by key: a row adds those it sees.
template <float (*Exp)(float)> [[gnu::noinline]] void attend_by_key(float* s, int from, int to, const float* v,
                                                                    float* o, float* maximum, float* sum, int width) {
  for (int r = 0; r < kRows; ++r) {
    float* const row = s + r * kTile;
    int key[kTile], keys = 0;
    for (int j = from; j < to; ++j)
      if (row[j] != kNone) key[keys++] = j;
    const float shrink = fusescope_cpu::weigh<Exp>(row + from, to - from, maximum[r], sum[r]);
    for (int i = 0; i < keys; ++i) row[i] = row[key[i]];  // key[i] >= i
    add_listed_values(row, key, keys, v, o + r * width, shrink, width);
  }
}

template <float (*Exp)(float)> inline void attend_tile(float* s, int from, int to, const float* v, bool finite,
                                                       float* o, float* maximum, float* sum, int width) {
  if (!finite) return attend_by_key<Exp>(s, from, to, v, o, maximum, sum, width);
  float shrink[kRows];
  for (int r = 0; r < kRows; ++r)
    shrink[r] = fusescope_cpu::weigh<Exp>(s + r * kTile + from, to - from, maximum[r], sum[r]);
  over_columns(width, [&](auto blocks, int64_t d) {
    add_values<decltype(blocks)::value>(s, v + d, o + d, shrink, from, to, width);
  });
}

}  // namespace cpu_tiles
