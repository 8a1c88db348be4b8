// Matrix product on the CPU: blocks packed to fp32 panels that stay in cache, and a register-blocked kernel over them.
//
// The scheme is Goto's (BLIS): a task owns a TileM x TileN block of C in fp32, walks k in steps of StepK, packs that
// step of A and of B into panels MR rows and NR columns wide, and multiplies panel by panel with MR x NR accumulators
// in registers. Packing also takes any strides and storage type, so there is one inner kernel. Tasks share nothing: no
// barrier anywhere.
#pragma once
#include <algorithm>
#include <memory>

#include "../gemm/gemm.cuh"
#include "cpu.h"

namespace cpu_matrix {
using fusescope_cpu::from_float;
using fusescope_cpu::to_float;

#if defined(__AVX512F__)
constexpr int LANES = 16, MR = 12;  // 24 accumulators, 2 of B, the element of A from memory: 27 of 32 registers
#else
constexpr int LANES = 8, MR = 6;  // 12 accumulators, 2 of B, 1 of A: 15 of 16 registers
#endif
constexpr int NR = 2 * LANES, StepK = 256, TileM = 16 * MR, TileN = 8 * NR;
typedef float Vector __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

struct Buffers {
  alignas(64) float a[TileM * StepK], b[TileN * StepK], c[TileM * TileN];
};

// panel[p][r] = source element (r, p), zero for r beyond `rows`; `major` and `minor` are the distances along r and p.
template <typename T, int R>
inline void pack_panel(const T* source, int64_t major, int64_t minor, int rows, int steps, float* panel) {
  if (major == 1 && rows == R) {
    for (int p = 0; p < steps; ++p)
#pragma omp simd
      for (int r = 0; r < R; ++r) panel[p * R + r] = to_float(source[p * minor + r]);
    return;
  }
  if (rows < R) std::fill(panel, panel + int64_t(steps) * R, 0.0f);
  for (int r = 0; r < rows; ++r) {
    const T* row = source + r * major;
    if (minor == 1) {
      for (int p = 0; p < steps; ++p) panel[p * R + r] = to_float(row[p]);
    } else {
      for (int p = 0; p < steps; ++p) panel[p * R + r] = to_float(row[p * minor]);
    }
  }
}

// c[MR][NR] = a panel b panel over `steps`, or += where not `first`; rows of c are TileN apart.
inline void multiply_panels(const float* a, const float* b, float* c, int steps, bool first) {
  Vector sum[MR][2] = {};
  if (!first) {
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      sum[i][0] = *reinterpret_cast<const Vector*>(c + i * TileN);
      sum[i][1] = *reinterpret_cast<const Vector*>(c + i * TileN + LANES);
    }
  }
  for (int p = 0; p < steps; ++p) {
    const Vector b0 = *reinterpret_cast<const Vector*>(b + p * NR),
                 b1 = *reinterpret_cast<const Vector*>(b + p * NR + LANES);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      const float x = a[p * MR + i];
      sum[i][0] += x * b0;
      sum[i][1] += x * b1;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
    *reinterpret_cast<Vector*>(c + i * TileN) = sum[i][0];
    *reinterpret_cast<Vector*>(c + i * TileN + LANES) = sum[i][1];
  }
}

// Block (i0, j0) of one product, `rows` x `cols` of it.
template <typename T>
void multiply_block(const GemmArgs& g, const T* a, const T* b, T* c, int64_t i0, int64_t j0, Buffers& w) {
  const int rows = int(std::min<int64_t>(TileM, g.m - i0)), cols = int(std::min<int64_t>(TileN, g.n - j0));
  if (g.k == 0) std::fill(w.c, w.c + TileM * TileN, 0.0f);
  for (int64_t p0 = 0; p0 < g.k; p0 += StepK) {
    const int steps = int(std::min<int64_t>(StepK, g.k - p0));
    for (int i = 0; i < rows; i += MR)
      pack_panel<T, MR>(a + (i0 + i) * g.a_row + p0 * g.a_col, g.a_row, g.a_col, std::min(MR, rows - i), steps,
                        w.a + i * StepK);
    for (int j = 0; j < cols; j += NR)
      pack_panel<T, NR>(b + p0 * g.b_row + (j0 + j) * g.b_col, g.b_col, g.b_row, std::min(NR, cols - j), steps,
                        w.b + j * StepK);
    for (int j = 0; j < cols; j += NR)
      for (int i = 0; i < rows; i += MR)
        multiply_panels(w.a + i * StepK, w.b + j * StepK, w.c + i * TileN + j, steps, p0 == 0);
  }
  for (int i = 0; i < rows; ++i) {
    T* out = c + (i0 + i) * g.n + j0;
    const float* sum = w.c + i * TileN;
#pragma omp simd
    for (int j = 0; j < cols; ++j) out[j] = from_float<T>(sum[j]);
  }
}

// Few rows (a vector times a matrix, decoding): packing B would cost more than the product, so it is read once where it
// lies.
constexpr int FEW_ROWS = 4, FEW_COLS = 1024, FEW_STEPS = 2048;

template <typename T> void multiply_few_rows(const GemmArgs& g, const T* a, const T* b, T* c, int64_t j0) {
  const int rows = int(g.m), cols = int(std::min<int64_t>(FEW_COLS, g.n - j0));
  alignas(64) float sum[FEW_ROWS][FEW_COLS] = {}, x[FEW_ROWS][FEW_STEPS];
  for (int64_t p0 = 0; p0 < g.k; p0 += FEW_STEPS) {
    const int steps = int(std::min<int64_t>(FEW_STEPS, g.k - p0));
    for (int i = 0; i < rows; ++i)
      for (int p = 0; p < steps; ++p) x[i][p] = to_float(a[i * g.a_row + (p0 + p) * g.a_col]);
    const T* from = b + p0 * g.b_row + j0 * g.b_col;
    if (g.b_col == 1) {  // rows of B are dense: add multiples of them
      int p = 0;
      for (; p + 4 <= steps; p += 4)  // four at a time: a quarter of the traffic to the sums
        for (int i = 0; i < rows; ++i) {
          const T *r0 = from + p * g.b_row, *r1 = r0 + g.b_row, *r2 = r1 + g.b_row, *r3 = r2 + g.b_row;
          const float x0 = x[i][p], x1 = x[i][p + 1], x2 = x[i][p + 2], x3 = x[i][p + 3];
#pragma omp simd
          for (int j = 0; j < cols; ++j)
            sum[i][j] += (x0 * to_float(r0[j]) + x1 * to_float(r1[j])) + (x2 * to_float(r2[j]) + x3 * to_float(r3[j]));
        }
      for (; p < steps; ++p)
        for (int i = 0; i < rows; ++i) {
          const T* row = from + p * g.b_row;
          const float factor = x[i][p];
#pragma omp simd
          for (int j = 0; j < cols; ++j) sum[i][j] += factor * to_float(row[j]);
        }
    } else {  // columns of B are dense: dot products, four at a time so that their chains of additions overlap
      int j = 0;
      for (; j + 4 <= cols; j += 4)
        for (int i = 0; i < rows; ++i) {
          const T *c0 = from + j * g.b_col, *c1 = c0 + g.b_col, *c2 = c1 + g.b_col, *c3 = c2 + g.b_col;
          float d0 = 0.0f, d1 = 0.0f, d2 = 0.0f, d3 = 0.0f;
#pragma omp simd reduction(+ : d0, d1, d2, d3)
          for (int p = 0; p < steps; ++p) {
            d0 += x[i][p] * to_float(c0[p]);
            d1 += x[i][p] * to_float(c1[p]);
            d2 += x[i][p] * to_float(c2[p]);
            d3 += x[i][p] * to_float(c3[p]);
          }
          sum[i][j] += d0, sum[i][j + 1] += d1, sum[i][j + 2] += d2, sum[i][j + 3] += d3;
        }
      for (; j < cols; ++j)
        for (int i = 0; i < rows; ++i) {
          const T* column = from + j * g.b_col;
          float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
          for (int p = 0; p < steps; ++p) dot += x[i][p] * to_float(column[p]);
          sum[i][j] += dot;
        }
    }
  }
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j) c[i * g.n + j0 + j] = from_float<T>(sum[i][j]);
}

// All products of a batch: offset(z, a_offset, b_offset) gives where product z begins in A and in B, in elements.
template <typename T, typename Offset> void multiply(const GemmArgs& g, int64_t batch, Offset offset) {
  const bool few = g.m <= FEW_ROWS;
  const int64_t blocks_n = few ? (g.n + FEW_COLS - 1) / FEW_COLS : (g.n + TileN - 1) / TileN;
  const int64_t blocks = few ? blocks_n : (g.m + TileM - 1) / TileM * blocks_n;
  const double work = double(g.m) * double(g.n) * double(g.k) * double(batch);
#pragma omp parallel if (work > 1e5 && batch * blocks > 1)
  {
    // Kept from call to call; on the heap, because a thread's stack may be smaller.
    static thread_local const std::unique_ptr<Buffers> own(new Buffers);
#pragma omp for schedule(dynamic)
    for (int64_t task = 0; task < batch * blocks; ++task) {
      const int64_t z = task / blocks, block = task % blocks;
      int64_t a_offset = 0, b_offset = 0;
      offset(z, a_offset, b_offset);
      const T* a = static_cast<const T*>(g.a) + a_offset;
      const T* b = static_cast<const T*>(g.b) + b_offset;
      T* c = static_cast<T*>(g.c) + z * g.m * g.n;
      if (few)
        multiply_few_rows<T>(g, a, b, c, block * FEW_COLS);
      else
        multiply_block<T>(g, a, b, c, block / blocks_n * TileM, block % blocks_n * TileN, *own);
    }
  }
}

}  // namespace cpu_matrix
