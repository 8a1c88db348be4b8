// A product of up to sixteen rows, the weight as left operand of mma.sync, from 16-byte loads straight to registers.
//
// A product's sum does not mind the order of its columns: a thread takes the eight neighbouring columns of one 16-byte
// load of a weight's row, and of one of x, as its elements of two products of 16 columns, without shared memory or
// ldmatrix. The warps of a block take 32 columns in turn for the same sixteen or 32 outputs. A thread holds four or
// eight 16-byte pieces of the weight in flight. The warps' sums are added in one fixed order.
#pragma once
#include "launch.cuh"
#include "mma.cuh"

namespace few_rows {
constexpr int THREADS = 256, WARPS = THREADS / 32, COLUMNS = 32;

// Eight weights, zeros beyond `terms`; they are read once and do not displace x from the first-level cache.
__device__ __forceinline__ uint4 load_once(const void* from, bool inside) {
  uint4 v = {0, 0, 0, 0};
  if (!inside) return v;
#ifdef __CUDA_ARCH__
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
#else
  v = *static_cast<const uint4*>(from);
#endif
  return v;
}

// What one block computes. Tiles: of sixteen outputs; Eights: of eight rows. terms and weight_row are multiples of 8.
template <typename T, int Tiles, int Eights> struct Product {
  static constexpr int depth = Tiles == 2 || Eights == 2 ? 2 : 4, block_outputs = 16 * Tiles, block_rows = 8 * Eights;
  static constexpr int step = WARPS * COLUMNS;

  const T* from[Tiles][2];
  uint4 ring[depth][Tiles][2];
  float sum[Tiles][Eights][4] = {};
  int first, outputs, terms, warp, g, t, k;

  __device__ __forceinline__ Product(const T* weight, int64_t weight_row, int outputs, int terms)
      : first(blockIdx.x * block_outputs),
        outputs(outputs),
        terms(terms),
        warp(threadIdx.x / 32),
        g(threadIdx.x % 32 / 4),
        t(threadIdx.x % 4),
        k(warp * COLUMNS + t * 8) {
#pragma unroll
    for (int i = 0; i < Tiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // beyond the last output the last one again, whose sum is not written
        const int n = first + 16 * i + 8 * half + g;
        from[i][half] = weight + (n < outputs ? n : outputs - 1) * weight_row;
      }
  }

  __device__ __forceinline__ void request(uint4 (&to)[Tiles][2], int at) {
#pragma unroll
    for (int i = 0; i < Tiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) to[i][half] = load_once(from[i][half] + at, at < terms);
  }

  // Requests the first weights.
  __device__ __forceinline__ void start() {
#pragma unroll
    for (int d = 0; d < depth; ++d) request(ring[d], k + d * step);
  }

  // eight(r, at): the elements at ... at + 7 of row r of x; zeros where there are none.
  template <typename Eight> __device__ __forceinline__ void multiply(Eight eight) {
    // The bound is the warp's, not the thread's: all lanes take part in each product.
    for (int begin = warp * COLUMNS; begin < terms; begin += depth * step, k += depth * step) {
#pragma unroll
      for (int d = 0; d < depth; ++d) {
        const int at = k + d * step;
        uint4 in[Eights];
#pragma unroll
        for (int j = 0; j < Eights; ++j) in[j] = eight(8 * j + g, at);
#pragma unroll
        for (int i = 0; i < Tiles; ++i) {
          const uint4 upper = ring[d][i][0], lower = ring[d][i][1];
          const uint32_t a[2][4] = {{upper.x, lower.x, upper.y, lower.y}, {upper.z, lower.z, upper.w, lower.w}};
#pragma unroll
          for (int j = 0; j < Eights; ++j) {
            const uint32_t b[2][2] = {{in[j].x, in[j].y}, {in[j].z, in[j].w}};
            tensor_core::mma_m16n8k16<T>(sum[i][j], a[0], b[0]);
            tensor_core::mma_m16n8k16<T>(sum[i][j], a[1], b[1]);
          }
        }
        request(ring[d], at + depth * step);
      }
    }
  }

  // Calls end(r, n, sum of products) once for each row and output of the block.
  template <typename End> __device__ __forceinline__ void finish(int rows, End end) {
    __shared__ float parts[WARPS][block_rows][block_outputs];
#pragma unroll
    for (int i = 0; i < Tiles; ++i)
#pragma unroll
      for (int j = 0; j < Eights; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) parts[warp][8 * j + 2 * t + e % 2][16 * i + g + 8 * (e / 2)] = sum[i][j][e];
    __syncthreads();
    for (int at = threadIdx.x; at < block_rows * block_outputs; at += THREADS) {
      const int r = at / block_outputs, n = first + at % block_outputs;
      if (r >= rows || n >= outputs) continue;
      float whole = 0.0f;
#pragma unroll
      for (int w = 0; w < WARPS; ++w) whole += parts[w][r][at % block_outputs];
      end(r, n, whole);
    }
  }
};
}  // namespace few_rows
