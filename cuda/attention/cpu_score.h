// The score expression that the CPU kernel is compiled with (score.cuh), if any.
#pragma once
#include <cmath>

#include "scored.h"

#ifdef FUSESCOPE_SCORE
#define SCORE_FUNCTION inline

namespace score_math {
template <typename Index> inline int within(Index i, int size) { return i < 0 ? 0 : i < size ? int(i) : size - 1; }
template <typename Index> inline int64_t place(const ScoreTable& table, Index i) { return within(i, table.columns); }
template <typename Row, typename Column> inline int64_t place(const ScoreTable& table, Row i, Column j) {
  return int64_t(within(i, table.rows)) * table.columns + within(j, table.columns);
}
template <typename... Index> inline float float_at(const ScoreTable& table, Index... index) {
  return static_cast<const float*>(table.data)[place(table, index...)];
}
template <typename... Index> inline int int_at(const ScoreTable& table, Index... index) {
  return static_cast<const int*>(table.data)[place(table, index...)];
}
inline float fused(float a, float b, float c) { return a * b + c; }
inline float divided(float a, float b) { return a / b; }
inline float tanh(float x) { return std::tanh(x); }
inline float exp(float x) { return std::exp(x); }
inline float log(float x) { return std::log(x); }
inline float sqrt(float x) { return std::sqrt(x); }
inline float abs(float x) { return std::fabs(x); }
inline float least(float a, float b) { return std::fmin(a, b); }
inline float largest(float a, float b) { return std::fmax(a, b); }
}  // namespace score_math

#include "score_integers.h"

#include FUSESCOPE_SCORE

// A query row: the offset of its bias, as which it goes where there is no expression, and where it is.
struct RowPlace {
  int64_t bias;
  int b, h, row;
  operator int64_t() const { return bias; }
};
inline RowPlace row_place(int64_t bias, int b, int h, int row) { return {bias, b, h, row}; }

// What the expression needs of a row, once.
struct ExpressedRow {
  const ScoreTable* tables;
  int b, h, q;
  score_expression::Head head;
  score_expression::Row row;

  // past: keys before the first query
  ExpressedRow(const AttentionScored& scored, const RowPlace& at, int past)
      : tables(scored.tables.table),
        b(at.b),
        h(at.h),
        q(at.row + past),
        head(score_expression::of_head(tables, b, h)),
        row(score_expression::of_row(tables, head, b, h, q)) {}
  float operator()(float score, int k) const {
    return score_expression::of_score(tables, head, row, b, h, q, k, float(k), 0.f, score);
  }
};

inline const char* refused_by_expression(const AttentionArgs& a) {
  using namespace score_expression;
  return refused_by_expression(a, kTables, kIntegers, kMatrices);
}
#else
using RowPlace = int64_t;
inline RowPlace row_place(int64_t bias, int, int, int) { return bias; }
struct ExpressedRow {
  ExpressedRow(const AttentionScored&, RowPlace, int) {}
  float operator()(float score, int) const { return score; }
};
inline const char* refused_by_expression(const AttentionArgs&) { return nullptr; }
#endif
