// Matrix product on tensor cores (mma.sync m16n8k16, sm_80 and newer) for fp16 and bf16: the device code of gemm and
// bmm.
//
// A block computes TileM x TileN of C in steps of StepK along k. Stages of shared memory form a ring that cp.async
// fills Stages - 1 steps ahead; tiles have their operand's layout (k or the outer dimension dense),
// XOR-swizzled, and ldmatrix, plain or transposing, makes fragments of either. Fragments are loaded one 16-step ahead
// of the products that use them. Results go through shared memory so that they are stored as 16-byte vectors.
#pragma once
#include "../common/async_copy.cuh"
#include "../common/device.cuh"
#include "../common/launch.cuh"
#include "../common/mma.cuh"
#include "../common/swizzle.cuh"
#include "tiles.cuh"

namespace mma_tile {

constexpr int MOST_K = 1 << 30;

// WarpM x WarpN is what one warp computes; Share is the rate per output, relative to the best shape, that the choice
// assumes.
template <int TileM_, int TileN_, int StepK_, int WarpM_, int WarpN_, int Stages_, int Blocks_, int SharePercent_>
struct Shape {
  static constexpr int TileM = TileM_, TileN = TileN_, StepK = StepK_, WarpM = WarpM_, WarpN = WarpN_, Stages = Stages_;
  static constexpr int Blocks = Blocks_, SharePercent = SharePercent_;  // blocks per SM to aim for
  static constexpr int WarpsM = TileM / WarpM, WarpsN = TileN / WarpN, Threads = 32 * WarpsM * WarpsN;
  static constexpr int BytesA = 2 * TileM * StepK, BytesB = 2 * TileN * StepK, BytesStage = BytesA + BytesB;
  static constexpr int Bytes = Stages * BytesStage;
  static_assert(2 * TileM * TileN <= Bytes, "the result is staged in the memory of the ring");
  static_assert(StepK % 32 == 0, "fragments alternate between two sets, one 16-step ahead");
};

using Large = Shape<128, 256, 32, 64, 64, 4, 1, 100>;
using Medium = Shape<128, 128, 32, 64, 64, 4, 2, 95>;
using Small = Shape<64, 64, 64, 32, 32, 4, 3, 60>;

// One operand's tile as it travels: Rows x Dense elements, Dense being contiguous in memory, in chunks of 8 (16 bytes).
// A thread keeps one chunk column and copies every RowStep-th row, so its swizzled destinations are RowStep rows apart.
template <typename T, int Rows, int Dense, int Threads> struct TileLoader {
  static constexpr int Chunks = Dense / 8, RowStep = Threads / Chunks, Count = Rows / RowStep;
  static_assert(Threads % Chunks == 0 && Rows % RowStep == 0 && RowStep % 8 == 0, "whole rounds, one swizzle pattern");

  const T* base;    // any readable address, for copies that read nothing
  const T* source;  // this thread's first chunk
  int64_t leading;  // distance between rows
  int rows_left;    // rows from this thread's first one to the end
  int dense_left;   // elements from this thread's chunk to the end of a row
  uint32_t target;  // offset of the first chunk within a tile
  bool wide;        // 16-byte reads are aligned

  __device__ TileLoader(const T* data, int64_t leading, int64_t row, int64_t dense, int64_t row_end, int64_t dense_end,
                        bool wide)
      : base(data), leading(leading), wide(wide) {
    const int r = threadIdx.x / Chunks, c = threadIdx.x % Chunks;
    source = data + (row + r) * leading + dense + 8 * c;
    rows_left = clamp(row_end - row - r);
    dense_left = clamp(dense_end - dense - 8 * c);
    target = swizzled<2 * Dense>(r, c);
  }

  __device__ __forceinline__ void load(uint32_t tile) const {
    const int kept = dense_left < 0 ? 0 : dense_left > 8 ? 8 : dense_left;
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      const int elements = i * RowStep < rows_left ? kept : 0;
      const T* from = elements ? source + int64_t(i * RowStep) * leading : base;
      const uint32_t to = tile + target + i * RowStep * 2 * Dense;
      if (wide)
        async_copy::copy16_partial(to, from, 2 * elements);
      else
        copy_elements(to, from, elements);
    }
  }

  // On to the tile that follows along the dense dimension, or along the rows.
  __device__ __forceinline__ void advance_dense() { source += Dense, dense_left -= Dense; }
  __device__ __forceinline__ void advance_rows() { source += Rows * leading, rows_left -= Rows; }

 private:
  // Enough to be right for a tile or a walk along k, which the launcher bounds.
  static __device__ int clamp(int64_t x) { return int(x > MOST_K ? MOST_K : x < -MOST_K ? -MOST_K : x); }

  // Where rows do not begin at multiples of 16 bytes: element by element, through registers.
  static __device__ __forceinline__ void copy_elements(uint32_t to, const T* from, int elements) {
    const uint16_t* bits = reinterpret_cast<const uint16_t*>(from);
    uint32_t word[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const uint32_t low = 2 * w < elements ? bits[2 * w] : 0, high = 2 * w + 1 < elements ? bits[2 * w + 1] : 0;
      word[w] = low | high << 16;
    }
    async_copy::store16(to, word);
  }
};

// AlongA, AlongB: k is the dense dimension of A, of B.
template <typename T, typename S, bool AlongA, bool AlongB, typename Batch>
__global__ void __launch_bounds__(S::Threads, S::Blocks) product(const __grid_constant__ GemmArgs g,
                                                                 const __grid_constant__ Batch batch, TileGrid grid,
                                                                 bool wide_a, bool wide_b, bool wide_c) {
  extern __shared__ __align__(128) unsigned char memory[];
  const uint32_t ring = tensor_core::shared_address(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_m = warp / S::WarpsN * S::WarpM, warp_n = warp % S::WarpsN * S::WarpN;

  int64_t matrix, tile_row, tile_col, a_offset, b_offset;
  grid.locate(blockIdx.x, matrix, tile_row, tile_col);
  batch.offsets(matrix, a_offset, b_offset);
  const int64_t row0 = tile_row * S::TileM, col0 = tile_col * S::TileN;

  const T* data_a = static_cast<const T*>(g.a) + a_offset;
  const T* data_b = static_cast<const T*>(g.b) + b_offset;
  auto loader_a = [&] {
    if constexpr (AlongA)
      return TileLoader<T, S::TileM, S::StepK, S::Threads>(data_a, g.a_row, row0, 0, g.m, g.k, wide_a);
    else
      return TileLoader<T, S::StepK, S::TileM, S::Threads>(data_a, g.a_col, 0, row0, g.k, g.m, wide_a);
  }();
  auto loader_b = [&] {
    if constexpr (AlongB)
      return TileLoader<T, S::TileN, S::StepK, S::Threads>(data_b, g.b_col, col0, 0, g.n, g.k, wide_b);
    else
      return TileLoader<T, S::StepK, S::TileN, S::Threads>(data_b, g.b_row, 0, col0, g.k, g.n, wide_b);
  }();

  const int steps = int((g.k + S::StepK - 1) / S::StepK);
  int loaded = 0;
  auto load_next = [&] {
    if (loaded < steps) {
      const uint32_t stage = ring + loaded % S::Stages * S::BytesStage;
      loader_a.load(stage);
      loader_b.load(stage + S::BytesA);
      if constexpr (AlongA)
        loader_a.advance_dense();
      else
        loader_a.advance_rows();
      if constexpr (AlongB)
        loader_b.advance_dense();
      else
        loader_b.advance_rows();
    }
    ++loaded;
    async_copy::commit();  // also an empty group: wait counts groups
  };

  constexpr int CountM = S::WarpM / 16, CountN = S::WarpN / 8, Slices = S::StepK / 16;
  float sum[CountM][CountN][4] = {};
  uint32_t a[2][CountM][4], b[2][CountN][2];

  // Fragments of 16-step `slice` of a stage, into set `set`. mma.cuh says which lane points at which row and chunk.
  auto load_fragments = [&](int set, uint32_t stage, int slice) {
    const int low = lane % 16, high = lane / 16, row8 = lane % 8 + 8 * high, chunk8 = lane / 8 % 2;
#pragma unroll
    for (int i = 0; i < CountM; ++i) {
      const int m = warp_m + 16 * i;
      if constexpr (AlongA)
        tensor_core::ldmatrix_x4(a[set][i], stage + swizzled<2 * S::StepK>(m + low, 2 * slice + high));
      else
        tensor_core::ldmatrix_x4_trans(a[set][i], stage + swizzled<2 * S::TileM>(16 * slice + row8, m / 8 + chunk8));
    }
#pragma unroll
    for (int j = 0; j < CountN; j += 2) {
      const int n = warp_n + 8 * j;
      uint32_t pair[4];
      if constexpr (AlongB)
        tensor_core::ldmatrix_x4(pair, stage + S::BytesA + swizzled<2 * S::StepK>(n + row8, 2 * slice + chunk8));
      else
        tensor_core::ldmatrix_x4_trans(pair,
                                       stage + S::BytesA + swizzled<2 * S::TileN>(16 * slice + low, n / 8 + high));
      b[set][j][0] = pair[0], b[set][j][1] = pair[1];
      b[set][j + 1][0] = pair[2], b[set][j + 1][1] = pair[3];
    }
  };

#pragma unroll
  for (int s = 0; s < S::Stages - 1; ++s) load_next();
  async_copy::wait<S::Stages - 2>();
  __syncthreads();
  load_fragments(0, ring, 0);
  for (int step = 0; step < steps; ++step) {
    const uint32_t stage = ring + step % S::Stages * S::BytesStage,
                   next = ring + (step + 1) % S::Stages * S::BytesStage;
#pragma unroll
    for (int slice = 0; slice < Slices; ++slice) {
      if (slice == Slices - 1) {
        // Step + 1 has landed for every thread, and every warp has its last fragments of this step: the stage may be
        // refilled.
        async_copy::wait<S::Stages - 2>();
        __syncthreads();
        load_fragments((slice + 1) % 2, next, 0);
      } else {
        load_fragments((slice + 1) % 2, stage, slice + 1);
      }
      if (slice == 0) load_next();  // into the stage of step - 1
#pragma unroll
      for (int i = 0; i < CountM; ++i)
#pragma unroll
        for (int j = 0; j < CountN; ++j) tensor_core::mma_m16n8k16<T>(sum[i][j], a[slice % 2][i], b[slice % 2][j]);
    }
  }
  async_copy::wait<0>();
  __syncthreads();

  // The warp's part of C, packed, to its place in a TileM x TileN tile; then out by rows.
#pragma unroll
  for (int i = 0; i < CountM; ++i)
#pragma unroll
    for (int j = 0; j < CountN; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = warp_m + 16 * i + 8 * half + lane / 4, chunk = warp_n / 8 + j;
        const uint32_t value = tensor_core::pack<T>(sum[i][j][2 * half], sum[i][j][2 * half + 1]);
        *reinterpret_cast<uint32_t*>(memory + swizzled<2 * S::TileN>(row, chunk) + lane % 4 * 4) = value;
      }
  __syncthreads();
  T* c = static_cast<T*>(g.c) + matrix * g.m * g.n;
  constexpr int Chunks = S::TileN / 8;
#pragma unroll 4
  for (int index = threadIdx.x; index < S::TileM * Chunks; index += S::Threads) {
    const int r = index / Chunks, chunk = index % Chunks;
    const int64_t row = row0 + r, col = col0 + 8 * chunk;
    if (row >= g.m || col >= g.n) continue;
    const uint4 value = *reinterpret_cast<const uint4*>(memory + swizzled<2 * S::TileN>(r, chunk));
    T* to = c + row * g.n + col;
    if (wide_c) {  // n is a multiple of 8, so a chunk that begins inside ends inside
      *reinterpret_cast<uint4*>(to) = value;
    } else {
      const uint32_t word[4] = {value.x, value.y, value.z, value.w};
      uint16_t* element = reinterpret_cast<uint16_t*>(to);
#pragma unroll
      for (int e = 0; e < 8; ++e)
        if (col + e < g.n) element[e] = uint16_t(word[e / 2] >> 16 * (e % 2));
    }
  }
}

template <typename T, typename S, bool AlongA, bool AlongB, typename Batch>
const char* launch(const GemmArgs& g, const Batch& batch, void* stream) {
  const TileGrid grid = tile_grid(g, S::TileM, S::TileN);
  if (grid.tiles() > MOST_BLOCKS / batch.count()) return "unsupported: more than 2^31 tiles of C";
  constexpr auto kernel = product<T, S, AlongA, AlongB, Batch>;
  if (const char* reason = allow_shared<kernel>(S::Bytes)) return reason;
  const bool even = batch.multiples_of(8);
  const bool wide_a = even && aligned(g.a, 16) && (AlongA ? g.a_row : g.a_col) % 8 == 0;
  const bool wide_b = even && aligned(g.b, 16) && (AlongB ? g.b_col : g.b_row) % 8 == 0;
  const bool wide_c = aligned(g.c, 16) && g.n % 8 == 0;
  kernel<<<unsigned(grid.tiles() * batch.count()), S::Threads, S::Bytes, static_cast<cudaStream_t>(stream)>>>(
      g, batch, grid, wide_a, wide_b, wide_c);
  return launch_error();
}

// The time a shape should take, in outputs of one SM at the best rate: rounds of tiles over the SMs times a tile, by
// its share.
template <typename S> double estimate(const GemmArgs& g, int64_t count) {
  const int64_t tiles = tile_grid(g, S::TileM, S::TileN).tiles() * count, sms = multiprocessors();
  return double((tiles + sms - 1) / sms) * S::TileM * S::TileN * 100.0 / S::SharePercent;
}

template <typename T, bool AlongA, bool AlongB, typename Batch>
const char* choose(const GemmArgs& g, const Batch& batch, void* stream) {
  const double large = estimate<Large>(g, batch.count()), medium = estimate<Medium>(g, batch.count());
  const double small = estimate<Small>(g, batch.count());
  if (small < medium && small < large) return launch<T, Small, AlongA, AlongB>(g, batch, stream);
  if (medium < large) return launch<T, Medium, AlongA, AlongB>(g, batch, stream);
  return launch<T, Large, AlongA, AlongB>(g, batch, stream);
}

template <typename T, typename Batch> const char* run(const GemmArgs& g, const Batch& batch, void* stream) {
  if (g.k > MOST_K) return "unsupported: k above 2^30";
  const bool along_a = g.a_col == 1, along_b = g.b_row == 1;
  if (along_a) return along_b ? choose<T, true, true>(g, batch, stream) : choose<T, true, false>(g, batch, stream);
  return along_b ? choose<T, false, true>(g, batch, stream) : choose<T, false, false>(g, batch, stream);
}

}  // namespace mma_tile
