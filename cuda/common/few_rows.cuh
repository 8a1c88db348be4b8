// A product of up to sixteen rows, the weight as left operand of mma.sync, from 16-byte loads straight to registers.
//
// A product's sum does not mind the order of its columns: a thread takes the eight neighbouring columns of one 16-byte
// load of a weight's row, and of one of x, as its elements of two products of 16 columns, without shared memory or
// ldmatrix. The warps of a block take 32 columns in turn for the same sixteen or 32 outputs. A thread holds four or
// eight 16-byte pieces of the weight in flight. The warps' sums are added in one fixed order.
#pragma once
#include "dependent.cuh"
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

// Eight elements that the kernel before may have written.
__device__ __forceinline__ uint4 load_written(const void* from) {
#ifdef __CUDA_ARCH__
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
  return v;
#else
  return *static_cast<const uint4*>(from);
#endif
}

// What one block computes. Tiles: of sixteen outputs; Eights: of eight rows. terms and weight_row are multiples of 8.
template <typename T, int Tiles, int Eights> struct Product {
  static constexpr int depth = Tiles == 2 || Eights == 2 ? 2 : 4, step = WARPS * COLUMNS;
  static constexpr int block_outputs = 16 * Tiles, block_rows = 8 * Eights;
  static constexpr int chains = Tiles * Eights == 1 ? 2 : 1;  // of products that wait for one another
  static constexpr int rows_at_once = THREADS / block_outputs;
  static constexpr int ends = (block_rows + rows_at_once - 1) / rows_at_once;  // results that a thread writes

  const T* from[Tiles][2];
  uint4 ring[depth][Tiles][2];
  int outputs, terms, k;

  __device__ __forceinline__ Product(const T* weight, int64_t weight_row, int outputs, int terms)
      : outputs(outputs), terms(terms), k(threadIdx.x / 32 * COLUMNS + threadIdx.x % 4 * 8) {
#pragma unroll
    for (int i = 0; i < Tiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // beyond the last output the last one again, whose sum is not written
        const int n = blockIdx.x * block_outputs + 16 * i + 8 * half + threadIdx.x % 32 / 4;
        from[i][half] = weight + (n < outputs ? n : outputs - 1) * weight_row + k;
        have_ready(from[i][half]);
      }
  }

  // The row of x that this thread multiplies, of each eight, the last where there are fewer: its sums are not written.
  static __device__ __forceinline__ int own_row(int eight, int rows) {
    const int r = 8 * eight + threadIdx.x % 32 / 4;
    return r < rows ? r : rows - 1;
  }
  // The output and the rows whose results this thread writes.
  static __device__ __forceinline__ int output() { return blockIdx.x * block_outputs + threadIdx.x % block_outputs; }
  static __device__ __forceinline__ int row(int end) { return threadIdx.x / block_outputs + end * rows_at_once; }

  __device__ __forceinline__ void request(uint4 (&to)[Tiles][2], int ahead) {
#pragma unroll
    for (int i = 0; i < Tiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) to[i][half] = load_once(from[i][half] + ahead, k + ahead < terms);
  }

  // Requests the first weights.
  __device__ __forceinline__ void start() {
#pragma unroll
    for (int d = 0; d < depth; ++d) request(ring[d], d * step);
  }

  // columns(j, ahead): the eight elements of row own_row(j) of x from k + ahead on, where k is that of the constructor.
  // end(i, sum of products): the result of row(i) and output(), where there is one.
  template <typename Columns, typename End> __device__ __forceinline__ void run(int rows, Columns columns, End end) {
    float sum[chains][Tiles][Eights][4] = {};
    // The bound is the warp's, not the thread's: all lanes take part in each product.
    for (int begin = threadIdx.x / 32 * COLUMNS, done = 0; begin + done < terms; done += depth * step) {
#pragma unroll
      for (int d = 0; d < depth; ++d) {
        const int ahead = done + d * step;
        uint4 in[Eights];
#pragma unroll
        for (int j = 0; j < Eights; ++j) {
          in[j] = {0, 0, 0, 0};
          if (k + ahead < terms) in[j] = columns(j, ahead);
        }
#pragma unroll
        for (int i = 0; i < Tiles; ++i) {
          const uint4 upper = ring[d][i][0], lower = ring[d][i][1];
          const uint32_t a[2][4] = {{upper.x, lower.x, upper.y, lower.y}, {upper.z, lower.z, upper.w, lower.w}};
#pragma unroll
          for (int j = 0; j < Eights; ++j) {
            const uint32_t b[2][2] = {{in[j].x, in[j].y}, {in[j].z, in[j].w}};
            tensor_core::mma_m16n8k16<T>(sum[0][i][j], a[0], b[0]);
            tensor_core::mma_m16n8k16<T>(sum[chains - 1][i][j], a[1], b[1]);
          }
        }
        request(ring[d], ahead + depth * step);
      }
    }
    __shared__ float parts[WARPS][block_rows][block_outputs];
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < Tiles; ++i)
#pragma unroll
      for (int j = 0; j < Eights; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          parts[warp][8 * j + 2 * t + e % 2][16 * i + g + 8 * (e / 2)] =
              chains == 1 ? sum[0][i][j][e] : sum[0][i][j][e] + sum[chains - 1][i][j][e];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ends; ++i) {
      if (row(i) >= rows || row(i) >= block_rows || output() >= outputs) continue;
      float whole = 0.0f;
#pragma unroll
      for (int w = 0; w < WARPS; ++w) whole += parts[w][row(i)][threadIdx.x % block_outputs];
      end(i, whole);
    }
  }
};
}  // namespace few_rows
