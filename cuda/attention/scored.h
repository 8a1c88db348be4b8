// What attention is given besides, where scores are capped or modified by an expression, or rows have a sink.
//
//   score = softcap tanh(scale q k^T / softcap) + bias, softcap 0: scale q k^T + bias
//   out   = sum of exp(score) v / (sum of exp(score) + exp(sinks[h])): head h has a key more, whose value is zero
//
// A kernel compiled with FUSESCOPE_SCORE, the name of a generated header (score.cuh, cpu_score.h), has the expression
// in place of the soft-cap, and its tables.
//
// The binding passes every kernel an AttentionCallArgs, whose first member is AttentionPartsArgs, whose first is
// AttentionArgs. A kernel that takes softcap and sinks says so by *taken; the binding refuses the result of one that
// did not.
#pragma once
#include "parts.h"

#ifdef FUSESCOPE_SCORE
constexpr bool kExpressed = true;
#else
constexpr bool kExpressed = false;
#endif

// A tensor that an expression reads, contiguous, fewer than 2^31 elements of float or int32. One of one dimension has
// one row.
struct ScoreTable {
  const void* data;
  int32_t rows, columns;
};
constexpr int kMostTables = 8;
struct ScoreTables {
  ScoreTable table[kMostTables];
  int32_t count;
  uint32_t integers, matrices;  // a bit for each: int32 instead of float; two dimensions instead of one
};

struct AttentionScored {
  float softcap;       // >= 0
  const float* sinks;  // (H,), or nullptr
#ifdef FUSESCOPE_SCORE
  ScoreTables tables;
#endif
  bool given() const { return kExpressed || softcap > 0.f || sinks; }
};

// The binding is compiled without FUSESCOPE_SCORE, and a kernel with it has the same layout.
struct AttentionCallArgs {
  AttentionPartsArgs all;
  struct {
    float softcap;
    const float* sinks;
  } scored;
  bool* taken;
  ScoreTables tables;
};

// What a kernel takes by asking for it.
inline AttentionScored take_scored(const AttentionArgs& a) {
  const auto& call = reinterpret_cast<const AttentionCallArgs&>(a);
  if (call.taken) *call.taken = true;
#ifdef FUSESCOPE_SCORE
  return {0.f, call.scored.sinks, call.tables};
#else
  return {call.scored.softcap, call.scored.sinks};
#endif
}

#ifdef FUSESCOPE_SCORE
// Why an expression of so many tables of these kinds does not take a call; nullptr: it does.
inline const char* refused_by_expression(const AttentionArgs& a, int tables, uint32_t integers, uint32_t matrices) {
  constexpr int64_t most = int64_t(1) << 23;  // backend/fusescope/core/score/nodes.py
  const ScoreTables& given = reinterpret_cast<const AttentionCallArgs&>(a).tables;
  if (given.count != tables || given.integers != integers || given.matrices != matrices)
    return "the tensors of the score expression are others than those that it was compiled for";
  if (a.batch > most || a.heads > most || a.seq_q > most || a.seq_k > most)
    return "unsupported: a score expression with more than 2^23 sequences, heads, queries or keys";
  return nullptr;
}
#endif
