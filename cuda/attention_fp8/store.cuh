// Epilogue: rows divided by their sums and multiplied with the scales of V's columns, as 16-byte stores.
#pragma once
#include "step.cuh"

namespace fp8 {

// Each of four neighbouring lanes has a word of each of four groups; gives lane t all four words of group t.
__device__ __forceinline__ void transpose_words(uint32_t (&word)[4]) {
  const int lane = thread_here() % 4;
#pragma unroll
  for (int distance = 1; distance < 4; distance <<= 1) {
    const bool upper = lane & distance;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & distance) continue;
      const uint32_t mine = upper ? word[i] : word[i | distance];  // what the other lane is to have
      const uint32_t theirs = __shfl_xor_sync(0xffffffffu, mine, distance);
      (upper ? word[i] : word[i | distance]) = theirs;
    }
  }
}

// By a whole warp; row: this thread's first, eight before its second.
template <typename T, int D>
__device__ __forceinline__ void store(const AttentionFp8Args& args, int b, int h, int row, const Rows<D>& rows) {
  const int t = thread_here() % 4;
  const float* const scales = args.v_scale + (int64_t(b) * args.heads_kv + h / (args.heads / args.heads_kv)) * D;
  float inverse[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = rows.sum(r);
    inverse[r] = sum == 0.f ? 0.f : 1.f / sum;  // a row without a live key gives zeros; a NaN stays NaN
  }
#pragma unroll
  for (int m = 0; m < D / 32; ++m) {
    float scale[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = *reinterpret_cast<const float2*>(scales + 8 * (4 * m + i) + 2 * t);
      scale[2 * i] = two.x, scale[2 * i + 1] = two.y;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      uint32_t word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* const from = rows.part + 4 * (4 * m + i) + 2 * r;
        word[i] = tensor_core::pack<T>(from[0] * inverse[r] * scale[2 * i], from[1] * inverse[r] * scale[2 * i + 1]);
      }
      transpose_words(word);
      if (row + 8 * r < args.seq_q) {
        T* const to = static_cast<T*>(args.out) + b * args.out_stride[0] + h * args.out_stride[1] +
                      (row + 8 * r) * args.out_stride[2] + 8 * (4 * m + t);
        *reinterpret_cast<uint4*>(to) = make_uint4(word[0], word[1], word[2], word[3]);
      }
    }
  }
}

}  // namespace fp8
