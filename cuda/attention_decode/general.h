// What decoding is given besides: several query tokens a sequence, a paged cache, a window, soft-capped scores, sinks,
// scales of an fp8 cache.
//
//   q, out (B, H, T, D), T = tokens from 1 to 8. lengths[b] counts the keys with those of the new tokens: token t
//   stands at position p = lengths[b] - T + t and sees keys j with p - window < j <= p (window 0: every key up to p) of
//   the first lengths[b]. A token that sees no key gives zeros. k, v with a block table: (pages, H_kv, page, D); key j
//   of sequence b is row j % page of page block_table[b, j / page], S_max = page * columns of the table. Keys of a page
//   that is not in the cache are not seen.
//
//   score = softcap tanh(scale q k^T / softcap); softcap 0: scale q k^T
//   out   = sum of exp(score) v / (sum of exp(score) + exp(sinks[h]))
//
// k, v of e4m3 (kE4m3Cache): a key is k_scale[h] k, a value v_scale[h] v, of KV head h.
//
// The binding passes every kernel an AttentionDecodeCall, whose first member is AttentionDecodeArgs. A kernel that
// takes all this says so by *taken; the binding refuses the result of one that did not.
#pragma once
#include "attention_decode.cuh"

struct AttentionDecodeGeneral {
  const int32_t* block_table;  // (B, columns), columns side by side; nullptr: page b is sequence b
  const float* sinks;          // (H,), or nullptr
  int64_t table_row;           // distance between rows of block_table
  int64_t q_token;             // distance between tokens of q, in elements
  int32_t pages;               // pages in the cache; B without a table
  int32_t page;                // keys of a page, a multiple of 16; S_max without a table
  int32_t tokens;              // T
  int32_t window;              // keys that a token sees at most, its own among them; 0: no limit
  float softcap;               // 0: none
};

// Apart from the above, so that kernels of a 16-bit cache keep their arguments.
struct AttentionDecodeScales {
  const float* k;  // (H_kv,)
  const float* v;
};

struct AttentionDecodeCall {
  AttentionDecodeArgs args;
  AttentionDecodeGeneral general;
  bool* taken;
  AttentionDecodeScales scales;  // where dtype has kE4m3Cache
};

inline AttentionDecodeGeneral take_general(const AttentionDecodeArgs& a) {
  const auto& call = reinterpret_cast<const AttentionDecodeCall&>(a);
  if (call.taken) *call.taken = true;
  return call.general;
}

inline AttentionDecodeScales scales_of(const AttentionDecodeArgs& a) {
  return reinterpret_cast<const AttentionDecodeCall&>(a).scales;
}
