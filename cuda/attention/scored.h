// What attention is given besides, where scores are capped or rows have a sink.
//
//   score = softcap tanh(scale q k^T / softcap) + bias, softcap 0: scale q k^T + bias
//   out   = sum of exp(score) v / (sum of exp(score) + exp(sinks[h])): head h has a key more, whose value is zero
//
// The binding passes every kernel an AttentionCallArgs, whose first member is AttentionPartsArgs, whose first is
// AttentionArgs. A kernel that takes softcap and sinks says so by *taken; the binding refuses the result of one that
// did not.
#pragma once
#include "parts.h"

struct AttentionScored {
  float softcap;       // >= 0
  const float* sinks;  // (H,), or nullptr
  bool given() const { return softcap > 0.f || sinks; }
};

struct AttentionCallArgs {
  AttentionPartsArgs all;
  AttentionScored scored;
  bool* taken;
};

// What a kernel takes by asking for it.
inline AttentionScored take_scored(const AttentionArgs& a) {
  const auto& call = reinterpret_cast<const AttentionCallArgs&>(a);
  if (call.taken) *call.taken = true;
  return call.scored;
}
