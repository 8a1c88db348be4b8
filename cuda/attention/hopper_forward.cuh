// What v3_hopper and v4_scheduled do alike around their steps: tensor maps on the host, results to global memory.
#pragma once
#include "attention.cuh"
#include "hopper_store.cuh"
#include "row_again.cuh"

namespace hopper {

// The maps of q, k and v; nullptr when good, else what TMA lacks.
template <typename T> const char* make_maps(const AttentionArgs& args, CUtensorMap* q, CUtensorMap* k, CUtensorMap* v) {
  const int64_t q_sizes[4] = {args.batch, args.heads, args.seq_q, args.head_dim};
  const int64_t kv_sizes[4] = {args.batch, args.heads_kv, args.seq_k, args.head_dim};
  constexpr bool bf16 = std::is_same_v<T, __nv_bfloat16>;
  if (const char* why = make_map(q, bf16, args.q, q_sizes, args.q_stride)) return why;
  if (const char* why = make_map(k, bf16, args.k, kv_sizes, args.k_stride)) return why;
  return make_map(v, bf16, args.v, kv_sizes, args.v_stride);
}

// store_tile of a query tile's result to out; rows that came out as NaN are computed again.
template <typename T, int Panels, bool Scored = false, typename Value>
__device__ __forceinline__ void store_rows(uint8_t* tile, int wg, const AttentionArgs& args, int b, int h, int q_tile,
                                           Value value, const AttentionScored& scored = {}) {
  T* out =
      static_cast<T*>(args.out) + b * args.out_stride[0] + h * args.out_stride[1] + q_tile * 64 * args.out_stride[2];
  const unsigned broken =
      store_tile<T, Panels>(tile, wg, out, args.out_stride[2], args.seq_q - q_tile * 64, args.head_dim, value);
  row_again::attend_broken<T, Scored>(args, scored, b, h, q_tile * 64 + threadIdx.x / 32 % 4 * 16, broken);
}

}  // namespace hopper
