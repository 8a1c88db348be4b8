// Matrix product on the ordinary (fp32) cores: tiles in shared memory, a rectangle of outputs in the registers of each
// thread.
//
// A block computes TileM x TileN of C in steps of 16 along k. Operands are converted to fp32 on their way into shared
// memory, k-major, so that the inner loop reads neighbouring rows (or columns) as 16-byte vectors. Two
// buffers: while one step is computed, the next one travels from global memory into registers, so one barrier a step
// suffices.
#pragma once
#include "../common/device.cuh"
#include "../common/launch.cuh"
#include "tiles.cuh"

namespace simt {

constexpr int THREADS = 256, STEP = 16;

template <typename T> struct alignas(4 * sizeof(T)) Quad {
  T value[4];
};

// One operand as a block reads it: `outer` is the dimension it shares with C, the other one is k. One of them is dense.
template <typename T> struct Operand {
  const T* data;
  int64_t outer_step, k_step;  // distances in elements
  int64_t outer_end, k_end;
  bool k_dense;  // k_step is 1 (else outer_step is)
  bool quads;    // four neighbours along the dense dimension may be read at once

  // This thread's part of the Outer x STEP block at (outer, k), zeros beyond the ends.
  template <int Outer>
  __device__ __forceinline__ void fetch(float (&kept)[Outer * STEP / THREADS], int64_t outer, int64_t k) const {
#pragma unroll
    for (int quad = 0; quad < Outer * STEP / THREADS / 4; ++quad) {
      int o, p;
      place<Outer>(quad, o, p);
      const int64_t i = outer + o, j = k + p;
      const bool inside = k_dense ? i < outer_end : j < k_end;
      const int64_t left = k_dense ? k_end - j : outer_end - i;
      const T* from = data + i * outer_step + j * k_step;
      float* to = kept + 4 * quad;
      if (quads && inside && left >= 4) {
        const Quad<T> q = *reinterpret_cast<const Quad<T>*>(from);
#pragma unroll
        for (int e = 0; e < 4; ++e) to[e] = to_float(q.value[e]);
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) to[e] = inside && e < left ? to_float(from[e]) : 0.0f;
      }
    }
  }

  // Stores it to the tile [STEP][Outer + 4]; the 4 keep rows 16-byte aligned and shift them through the banks.
  template <int Outer>
  __device__ __forceinline__ void store(const float (&kept)[Outer * STEP / THREADS], float (*tile)[Outer + 4]) const {
#pragma unroll
    for (int quad = 0; quad < Outer * STEP / THREADS / 4; ++quad) {
      int o, p;
      place<Outer>(quad, o, p);
      const float* from = kept + 4 * quad;
      if (k_dense) {
#pragma unroll
        for (int e = 0; e < 4; ++e) tile[p + e][o] = from[e];
      } else {
        *reinterpret_cast<float4*>(&tile[p][o]) = make_float4(from[0], from[1], from[2], from[3]);
      }
    }
  }

 private:
  // Where four elements begin. Dense k: neighbouring threads have neighbouring rows, which they store
  // side by side; dense outer: neighbouring threads read and store neighbouring quads.
  template <int Outer> __device__ __forceinline__ void place(int quad, int& o, int& p) const {
    const int index = threadIdx.x + quad * THREADS;
    o = k_dense ? index % Outer : index % (Outer / 4) * 4;
    p = k_dense ? index / Outer * 4 : index / (Outer / 4);
  }
};

template <typename T, int TileM, int TileN, typename Batch>
__global__ void __launch_bounds__(THREADS, TileM == 128 ? 2 : 3) product(const __grid_constant__ GemmArgs g,
                                                                         const __grid_constant__ Batch batch,
                                                                         TileGrid grid, bool quads_a, bool quads_b,
                                                                         bool quads_c) {
  constexpr int PerM = TileM / 16, PerN = TileN / 16;  // outputs a thread: PerM x PerN, as quads 64 apart
  __shared__ __align__(16) float tile_a[2][STEP][TileM + 4];
  __shared__ __align__(16) float tile_b[2][STEP][TileN + 4];

  int64_t matrix, tile_row, tile_col, a_offset, b_offset;
  grid.locate(blockIdx.x, matrix, tile_row, tile_col);
  batch.offsets(matrix, a_offset, b_offset);
  const int64_t row0 = tile_row * TileM, col0 = tile_col * TileN;
  const Operand<T> a{static_cast<const T*>(g.a) + a_offset, g.a_row, g.a_col, g.m, g.k, g.a_col == 1, quads_a};
  const Operand<T> b{static_cast<const T*>(g.b) + b_offset, g.b_col, g.b_row, g.n, g.k, g.b_row == 1, quads_b};

  // A warp covers 4 x 8 quads: the fewest distinct shared-memory words for its 32 threads.
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int ty = warp / 2 * 4 + lane / 8, tx = warp % 2 * 8 + lane % 8;
  float sum[PerM][PerN] = {};
  float held_a[TileM * STEP / THREADS], held_b[TileN * STEP / THREADS];

  a.template fetch<TileM>(held_a, row0, 0);
  b.template fetch<TileN>(held_b, col0, 0);
  a.template store<TileM>(held_a, tile_a[0]);
  b.template store<TileN>(held_b, tile_b[0]);
  __syncthreads();
  int now = 0;
  for (int64_t k = 0; k < g.k; k += STEP, now ^= 1) {
    const bool more = k + STEP < g.k;
    if (more) {
      a.template fetch<TileM>(held_a, row0, k + STEP);
      b.template fetch<TileN>(held_b, col0, k + STEP);
    }
#pragma unroll
    for (int p = 0; p < STEP; ++p) {
      float x[PerM], y[PerN];
#pragma unroll
      for (int i = 0; i < PerM; i += 4)
        *reinterpret_cast<float4*>(x + i) = *reinterpret_cast<const float4*>(&tile_a[now][p][i * 16 + ty * 4]);
#pragma unroll
      for (int j = 0; j < PerN; j += 4)
        *reinterpret_cast<float4*>(y + j) = *reinterpret_cast<const float4*>(&tile_b[now][p][j * 16 + tx * 4]);
#pragma unroll
      for (int i = 0; i < PerM; ++i)
#pragma unroll
        for (int j = 0; j < PerN; ++j) sum[i][j] += x[i] * y[j];
    }
    if (more) {
      // No thread still reads the other buffer: all passed the barrier that ended the previous step.
      a.template store<TileM>(held_a, tile_a[now ^ 1]);
      b.template store<TileN>(held_b, tile_b[now ^ 1]);
    }
    __syncthreads();
  }

  T* c = static_cast<T*>(g.c) + matrix * g.m * g.n;
#pragma unroll
  for (int i = 0; i < PerM; ++i) {
    const int64_t row = row0 + i / 4 * 64 + ty * 4 + i % 4;
    if (row >= g.m) continue;
#pragma unroll
    for (int j = 0; j < PerN; j += 4) {
      const int64_t col = col0 + j * 16 + tx * 4;
      T* to = c + row * g.n + col;
      if (quads_c && col + 4 <= g.n) {
        Quad<T> q;
#pragma unroll
        for (int e = 0; e < 4; ++e) q.value[e] = from_float<T>(sum[i][j + e]);
        *reinterpret_cast<Quad<T>*>(to) = q;
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (col + e < g.n) to[e] = from_float<T>(sum[i][j + e]);
      }
    }
  }
}

template <typename T, int Tile, typename Batch>
const char* launch(const GemmArgs& g, const Batch& batch, void* stream) {
  const TileGrid grid = tile_grid(g, Tile, Tile);
  if (grid.tiles() > MOST_BLOCKS / batch.count()) return "unsupported: more than 2^31 tiles of C";
  constexpr int align = 4 * sizeof(T);
  const bool even = batch.multiples_of(4);
  const bool quads_a = even && aligned(g.a, align) && (g.a_col == 1 ? g.a_row : g.a_col) % 4 == 0;
  const bool quads_b = even && aligned(g.b, align) && (g.b_row == 1 ? g.b_col : g.b_row) % 4 == 0;
  const bool quads_c = aligned(g.c, align) && g.n % 4 == 0;
  product<T, Tile, Tile, Batch>
      <<<unsigned(grid.tiles() * batch.count()), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
          g, batch, grid, quads_a, quads_b, quads_c);
  return launch_error();
}

// Large tiles reuse each loaded element most, but want a GPU full of them; else small ones.
template <typename T, typename Batch> const char* run(const GemmArgs& g, const Batch& batch, void* stream) {
  const int64_t large = tile_grid(g, 128, 128).tiles() * batch.count();
  return large >= multiprocessors() ? launch<T, 128>(g, batch, stream) : launch<T, 64>(g, batch, stream);
}

}  // namespace simt
