// What decoding is given besides: several query tokens a sequence, a paged cache, a window, soft-capped scores, ALiBi,
// a bias, sinks, scales of an fp8 cache.
//
//   q, out (B, H, T, D), T = tokens from 1 to 8. lengths[b] counts the keys with those of the new tokens: token t
//   stands at position p = lengths[b] - T + t and sees keys j with p - window < j <= p (window 0: every key up to p) of
//   the first lengths[b]. A token that sees no key gives zeros. k, v with a block table: (pages, H_kv, page, D); key j
//   of sequence b is row j % page of page block_table[b, j / page], S_max = page * columns of the table. Keys of a page
//   that is not in the cache are not seen.
//
//   score = softcap tanh(scale q k^T / softcap) + slopes[h] (j - p) + bias[b, h, t, j]; softcap 0: scale q k^T + ...
//   out   = sum of exp(score) v / (sum of exp(score) + exp(sinks[h]))
//
// k, v of e4m3 (kE4m3Cache): a key is k_scale[h] k, a value v_scale[h] v, of KV head h.
//
// The binding passes every kernel an AttentionDecodeCall, whose first member is AttentionDecodeArgs. A kernel that
// takes all this says so by *taken; the binding refuses the result of one that did not. The same holds for a call with
// something added to its scores (AttentionDecodeBias), which take_bias() takes besides, and for one with a new token
// (AttentionDecodeNew), which take_new() takes.
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

// What is added to scores after soft-capping. It does not reach tokens that do not see the key: the bias is not read
// there. A bias of -inf masks its key, whatever k and v hold there.
struct AttentionDecodeBias {
  const float* slopes;  // (H,), ALiBi's, or nullptr
  const void* bias;     // (B, H, T, S_max), or nullptr; a stride of 0 broadcasts
  int64_t stride[4];    // in elements: batch, head, token, key
  int32_t dtype;        // FusescopeDtype: FS_FLOAT32 or that of q
};

// A whole number per sequence: data[b * row], int64 (wide) or int32.
struct SequenceNumber {
  const void* data;
  int64_t row;
  int32_t wide;
};

// One new token's key and value, which are not in the caches yet. Result and caches become those of rope_cache, then
// attention_decode: q and k turn by the rotary angles of the position as rope_cache.cuh says; key `place` of the
// sequence becomes k and v, in the caches too. A place outside 0 ... S_max - 1 and a page that is not in the cache are
// not written. One token, a cache of q's dtype, no window; columns of q, k, v and of the caches lie side by side.
struct AttentionDecodeNew {
  const void* k;  // (B, H_kv, D); nullptr: there is none, the caches hold all keys
  const void* v;
  void* k_cache;  // args.k and args.v
  void* v_cache;
  const float* cos_sin;     // (cos_sin_rows, rotary); nullptr: nothing turns
  SequenceNumber position;  // the row of cos_sin, where by_token is 0
  SequenceNumber place;
  int64_t k_stride[2], v_stride[2];  // in elements: batch, head
  int64_t cos_sin_rows;
  int32_t rotary;    // 0 without cos_sin
  int32_t by_token;  // 1: row b of cos_sin belongs to sequence b
  int32_t settled;   // 1: the kernel before this one wrote nothing but q, k and v of what is read here
};

struct AttentionDecodeCall {
  AttentionDecodeArgs args;
  AttentionDecodeGeneral general;
  bool* taken;
  AttentionDecodeScales scales;  // where dtype has kE4m3Cache
  AttentionDecodeNew added;
  AttentionDecodeBias bias;  // neither slopes nor bias: nothing is added
};

inline AttentionDecodeGeneral take_general(const AttentionDecodeArgs& a) {
  const auto& call = reinterpret_cast<const AttentionDecodeCall&>(a);
  if (call.taken && !call.added.k && !call.bias.slopes && !call.bias.bias) *call.taken = true;
  return call.general;
}

// nullptr: nothing is added to scores.
inline const AttentionDecodeBias* take_bias(const AttentionDecodeArgs& a) {
  const auto& call = reinterpret_cast<const AttentionDecodeCall&>(a);
  if (!call.bias.slopes && !call.bias.bias) return nullptr;
  *call.taken = true;
  return &call.bias;
}

// nullptr: there is no new token.
inline const AttentionDecodeNew* take_new(const AttentionDecodeArgs& a) {
  const auto& call = reinterpret_cast<const AttentionDecodeCall&>(a);
  if (call.added.k) *call.taken = true;
  return call.added.k ? &call.added : nullptr;
}

inline AttentionDecodeScales scales_of(const AttentionDecodeArgs& a) {
  return reinterpret_cast<const AttentionDecodeCall&>(a).scales;
}
