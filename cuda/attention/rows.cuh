// Addresses of a block's query tile, keys and bias, for the kernels that load without TMA.
#pragma once
#include "../common/eight.cuh"
#include "attention.cuh"

// One block per query tile, the last tile of a head first: under a causal mask it has the most keys.
struct QueryTile {
  int tiles, number, b, head, head_kv;  // query tiles per head; index of this one; batch entry and heads
  int begin, end;                       // its tile list, or all KV tiles

  __device__ __forceinline__ QueryTile(const AttentionArgs& a, unsigned block)
      : tiles((a.seq_q + ATTENTION_TILE - 1) / ATTENTION_TILE),
        number(tiles - 1 - int(block % tiles)),
        b(int(block / tiles / a.heads)),
        head(int(block / tiles % a.heads)),
        head_kv(head / (a.heads / a.heads_kv)) {
    const int64_t list = int64_t(b * a.mask_stride_b + head * a.mask_stride_h) * tiles + number;
    begin = a.row_ptr ? a.row_ptr[list] : 0;
    end = a.row_ptr ? a.row_ptr[list + 1] : (a.seq_k + ATTENTION_TILE - 1) / ATTENTION_TILE;
  }
  __device__ __forceinline__ int first_row() const { return number * ATTENTION_TILE; }
  template <typename T> __device__ __forceinline__ const T* query(const AttentionArgs& a) const {
    return static_cast<const T*>(a.q) + b * a.q_stride[0] + head * a.q_stride[1];
  }
  template <typename T> __device__ __forceinline__ const T* keys(const AttentionArgs& a) const {
    return static_cast<const T*>(a.k) + b * a.k_stride[0] + head_kv * a.k_stride[1];
  }
  template <typename T> __device__ __forceinline__ const T* values(const AttentionArgs& a) const {
    return static_cast<const T*>(a.v) + b * a.v_stride[0] + head_kv * a.v_stride[1];
  }
  // The tile's first row of the result.
  template <typename T> __device__ __forceinline__ T* out(const AttentionArgs& a) const {
    return static_cast<T*>(a.out) + b * a.out_stride[0] + head * a.out_stride[1] + first_row() * a.out_stride[2];
  }
  static int64_t blocks(const AttentionArgs& a) {
    return int64_t(a.batch) * a.heads * ((a.seq_q + ATTENTION_TILE - 1) / ATTENTION_TILE);
  }
};

__device__ __forceinline__ float bias_at(const AttentionArgs& a, int64_t i) {
  if (a.bias_dtype == FS_FLOAT32) return static_cast<const float*>(a.bias)[i];
  if (a.bias_dtype == FS_FLOAT16) return __half2float(static_cast<const __half*>(a.bias)[i]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(a.bias)[i]);
}
