// Attention over packed sequences: out = softmax(scale q k^T, causal or within a window or not) v inside each of them.
//
//   q (T_q, H, D)   k, v (T_k, H_kv, D), query head h reads KV head h / (H / H_kv)   out (T_q, H, D), contiguous
//   Sequence b has the query rows cu_q[b] ... cu_q[b + 1] - 1 and the keys cu_k[b] ... cu_k[b + 1] - 1; either may be
//   none. Query i of a sequence stands at position p = i + keys - queries (aligned at the end). Causal: it sees the
//   keys j <= p. Within a window: the keys p - left <= j <= p + right. A row that sees no key gives zeros, and so do
//   the rows from cu_q[batch] on, which belong to no sequence.
//
// cu_q and cu_k (batch + 1) are int32 in device memory and rise from 0. Kernels take the first as 0 and keep the others
// inside the tensors, so that wrong ones give wrong results but touch no foreign memory.
#pragma once
#include "../common/interface.h"

struct AttentionVarlenArgs {
  const void* q;
  const void* k;
  const void* v;
  const int32_t* cu_q;
  const int32_t* cu_k;
  void* out;
  int64_t q_stride[3];  // in elements: row, head, column
  int64_t k_stride[3];
  int64_t v_stride[3];
  int32_t batch;  // >= 1
  int32_t heads;  // H >= 1, a multiple of heads_kv
  int32_t heads_kv;
  int32_t total_q;   // >= 1
  int32_t total_k;   // >= 0
  int32_t head_dim;  // a multiple of 8 from 32 to 256
  int32_t causal;
  float scale;
  int32_t dtype;  // FusescopeDtype of q, k, v and out
};

// What the binding passes to every kernel, as the pointer to its first member. A kernel that takes a window says so by
// *taken; the binding refuses the result of one that did not.
struct AttentionVarlenCall {
  AttentionVarlenArgs args;
  uint64_t* next;       // workspace: two words that items are drawn from (../common/tickets.cuh)
  bool* taken;          // nullptr: there is no window
  int32_t left, right;  // of a window, which causal is 0 with; at most total_k and total_q, which limit nothing
};
