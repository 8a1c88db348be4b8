// Tensor maps of packed rows on Hopper.
#pragma once
#include "../attention/hopper_launch.cuh"
#include "attention_varlen.cuh"

namespace varlen {

// The maps of q, k and v: packed rows as one batch entry, (batch, head, row, column). nullptr when good, else what TMA
// lacks.
inline const char* make_maps(const AttentionVarlenArgs& args, bool bf16, CUtensorMap* q, CUtensorMap* k,
                             CUtensorMap* v) {
  auto map = [&](CUtensorMap* to, const void* data, int rows, int heads, const int64_t (&stride)[3]) {
    const int64_t sizes[4] = {1, heads, rows, args.head_dim}, strides[4] = {0, stride[1], stride[0], stride[2]};
    return hopper::make_map(to, bf16, data, sizes, strides);
  };
  if (const char* why = map(q, args.q, args.total_q, args.heads, args.q_stride)) return why;
  if (const char* why = map(k, args.k, args.total_k, args.heads_kv, args.k_stride)) return why;
  return map(v, args.v, args.total_k, args.heads_kv, args.v_stride);
}

}  // namespace varlen
