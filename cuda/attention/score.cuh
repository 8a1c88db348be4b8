// The score expression that a kernel is compiled with, on the device; without FUSESCOPE_SCORE there is none, and
// nothing of this is code.
//
// The generated header (backend/fusescope/core/score/cpp.py) has three functions: of_head, of_row and of_score, each
// given what the one before has computed. Division, tanh, exp and log are by the special-function unit: some 3e-7
// of the result or, tanh, of 1.
#pragma once
#include <type_traits>

#include "../common/exp2.cuh"
#include "scored.h"

#ifdef FUSESCOPE_SCORE
#define SCORE_FUNCTION __device__ __forceinline__

namespace score_math {
// Not by __ldg, which may come before the wait for an earlier kernel that writes the table.
template <typename Value> SCORE_FUNCTION Value loaded(const void* data, int place) {
  return static_cast<const Value*>(data)[place];
}
// Out of range: the nearest.
template <typename Index> SCORE_FUNCTION int within(Index i, int size) {
  return i < 0 ? 0 : i < size ? int(i) : size - 1;
}
template <typename Value, typename Index> SCORE_FUNCTION Value at(const ScoreTable& table, Index i) {
  return loaded<Value>(table.data, within(i, table.columns));
}
template <typename Value, typename Row, typename Column>
SCORE_FUNCTION Value at(const ScoreTable& table, Row i, Column j) {
  return loaded<Value>(table.data, within(i, table.rows) * table.columns + within(j, table.columns));
}
template <typename... Index> SCORE_FUNCTION float float_at(const ScoreTable& table, Index... index) {
  return at<float>(table, index...);
}
template <typename... Index> SCORE_FUNCTION int int_at(const ScoreTable& table, Index... index) {
  return at<int>(table, index...);
}

SCORE_FUNCTION float fused(float a, float b, float c) { return fmaf(a, b, c); }
SCORE_FUNCTION float divided(float a, float b) { return __fdividef(a, b); }
SCORE_FUNCTION float tanh(float x) { return 1.f - __fdividef(2.f, 1.f + exp2_approx(x * (2.f * kLog2e))); }
SCORE_FUNCTION float exp(float x) { return exp2_approx(x * kLog2e); }
SCORE_FUNCTION float log(float x) {
#if defined(__CUDA_ARCH__)
  return __logf(x);
#else
  return logf(x);
#endif
}
SCORE_FUNCTION float sqrt(float x) { return sqrtf(x); }
SCORE_FUNCTION float abs(float x) { return fabsf(x); }
SCORE_FUNCTION float least(float a, float b) { return fminf(a, b); }
SCORE_FUNCTION float largest(float a, float b) { return fmaxf(a, b); }
}  // namespace score_math

#include "score_integers.h"

#include FUSESCOPE_SCORE

// A query row: what the expression needs of it. q: its position.
struct ExpressedRow {
  const ScoreTable* tables;
  score_expression::Head head;
  score_expression::Row row;
  int b, h, q;

  __device__ __forceinline__ ExpressedRow(const AttentionScored& scored, int b, int h, int q)
      : tables(scored.tables.table),
        head(score_expression::of_head(tables, b, h)),
        row(score_expression::of_row(tables, head, b, h, q)),
        b(b),
        h(h),
        q(q) {}
  // score: scaled. k as fp32 is k_base + k_offset: what depends on k_base alone is computed once for several keys.
  __device__ __forceinline__ float operator()(float score, int k, float k_base, float k_offset) const {
    return score_expression::of_score(tables, head, row, b, h, q, k, k_base, k_offset, score);
  }
  __device__ __forceinline__ float operator()(float score, int k) const { return (*this)(score, k, float(k), 0.f); }
};

inline const char* refused_by_expression(const AttentionArgs& a) {
  using namespace score_expression;
  return refused_by_expression(a, kTables, kIntegers, kMatrices);
}
#else
struct ExpressedRow {
  template <typename Scored> __device__ __forceinline__ ExpressedRow(const Scored&, int, int, int) {}
  __device__ __forceinline__ float operator()(float score, int, float = 0.f, float = 0.f) const { return score; }
};
inline const char* refused_by_expression(const AttentionArgs&) { return nullptr; }
#endif

// Whether this build has an instance for type T and Width columns, of widths that are Step apart. With an expression it
// has that of one dtype and head size: FUSESCOPE_SCORE_DTYPE, FUSESCOPE_SCORE_HEAD_DIM.
template <typename T, int Width, int Step = 64> constexpr bool is_built() {
#ifdef FUSESCOPE_SCORE
  constexpr int dtype = std::is_same_v<T, float> ? FS_FLOAT32 : std::is_same_v<T, __half> ? FS_FLOAT16 : FS_BFLOAT16;
  return dtype == FUSESCOPE_SCORE_DTYPE && Width >= FUSESCOPE_SCORE_HEAD_DIM && Width - Step < FUSESCOPE_SCORE_HEAD_DIM;
#else
  return true;
#endif
}
constexpr const char* kOtherBuild = "the score expression was compiled for another dtype or head size";
