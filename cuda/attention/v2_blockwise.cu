// Tensor cores on 64 x 64 tiles: only live tiles of the list are loaded, with cp.async one tile ahead of the products.
// archs: sm_80 sm_86 sm_89 sm_90a
// expects: HMMA
//
// Four warps share a tile of 64 query rows, 16 rows each; a warp keeps its rows' maximum, sum and output in registers, so the only
// barriers are those of the shared tiles. Scores leave the first product in the layout that the second takes as its operand.
// Heads up to 128 wide have two stages (the next K and V arrive while this tile is worked on); wider ones have room for one, and V
// arrives during the scores, the next K during the output. Head sizes between the widths built are padded with zeros on loading.
#include <atomic>

#include "../common/async_copy.cuh"
#include "../common/launch.cuh"
#include "../common/mma.cuh"
#include "attention.cuh"

namespace {
using namespace tensor_core;
constexpr int kTile = ATTENTION_TILE, kThreads = 128;
constexpr float kLog2e = 1.4426950408889634f;

__device__ __forceinline__ float exp2_approx(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);  // emulated on a CPU
#endif
}

// Byte offset of a 16-byte chunk in a tile of Width elements a row, so that ldmatrix's eight rows lie in different banks. Rows are a
// multiple of 64 bytes: of 128 bytes, where every row begins in bank 0, or with 64 over, where every second one does.
template <int Width> __device__ __forceinline__ uint32_t place(int row, int chunk) {
  const int moved = Width % 64 == 0 ? chunk ^ (row & 7) : chunk ^ ((row >> 1) & 3);
  return uint32_t(row * Width * 2 + moved * 16);
}

// Where rows of one of q, k, v start, and how they are read: in 16-byte pieces, or element by element.
template <typename T> struct Rows {
  const T* first;
  int64_t row_stride, column_stride;
  bool vectors;
};

// Starts loading rows [row, row + 64) of a matrix with `rows` rows and head_dim columns; zeros beyond. Each thread has whole chunks.
template <typename T, int Width> __device__ __forceinline__ void load_tile(char* tile, const Rows<T>& from, int row, int rows, int head_dim) {
  constexpr int chunks = Width / 8;
#pragma unroll 4
  for (int i = 0; i < kTile * chunks / kThreads; ++i) {
    const int piece = threadIdx.x + i * kThreads, r = piece / chunks, c = piece % chunks;
    const bool inside = row + r < rows && 8 * c < head_dim;
    const T* source = from.first + (inside ? (row + r) * from.row_stride + 8 * c * from.column_stride : 0);
    char* target = tile + place<Width>(r, c);
    if (from.vectors) {
      async_copy::copy16(shared_address(target), source, inside);
    } else {
      alignas(16) T eight[8];
#pragma unroll
      for (int e = 0; e < 8; ++e) eight[e] = inside ? source[e * from.column_stride] : from_float<T>(0.f);
      *reinterpret_cast<uint4*>(target) = *reinterpret_cast<uint4*>(eight);
    }
  }
}

__device__ __forceinline__ float bias_at(const AttentionArgs& a, int64_t i) {
  if (a.bias_dtype == FS_FLOAT32) return static_cast<const float*>(a.bias)[i];
  if (a.bias_dtype == FS_FLOAT16) return __half2float(static_cast<const __half*>(a.bias)[i]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(a.bias)[i]);
}

template <typename T, int Width>
__global__ void __launch_bounds__(kThreads, Width <= 32 ? 4 : Width <= 64 ? 3 : Width <= 128 ? 2 : 1) attention_blockwise(const __grid_constant__ AttentionArgs a, int vectors) {
  constexpr int Steps = Width / 16;            // of 16 head columns
  constexpr bool Double = Width <= 128;        // two stages
  constexpr bool Keep = Width <= 128;          // q's operands stay in registers
  constexpr int Bytes = kTile * Width * 2;     // a tile in shared memory
  extern __shared__ __align__(128) char shared[];
  char* const q_tile = shared;
  char* const k_tile = shared + Bytes;                       // stage s at s Bytes
  char* const v_tile = k_tile + (Double ? 2 : 1) * Bytes;

  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, pair = lane & 3;
  const int q_tiles = (a.seq_q + kTile - 1) / kTile, k_tiles = (a.seq_k + kTile - 1) / kTile;
  const int t = q_tiles - 1 - int(blockIdx.x % q_tiles);     // the last first: under causal it is the longest
  const int head = int(blockIdx.x / q_tiles % a.heads), b = int(blockIdx.x / q_tiles / a.heads);
  const int head_kv = head / (a.heads / a.heads_kv), row0 = t * kTile;
  const Rows<T> q{static_cast<const T*>(a.q) + b * a.q_stride[0] + head * a.q_stride[1], a.q_stride[2], a.q_stride[3], bool(vectors & 1)};
  const Rows<T> k{static_cast<const T*>(a.k) + b * a.k_stride[0] + head_kv * a.k_stride[1], a.k_stride[2], a.k_stride[3], bool(vectors & 2)};
  const Rows<T> v{static_cast<const T*>(a.v) + b * a.v_stride[0] + head_kv * a.v_stride[1], a.v_stride[2], a.v_stride[3], bool(vectors & 4)};

  const int64_t list = int64_t(b * a.mask_stride_b + head * a.mask_stride_h) * q_tiles + t;
  const int begin = a.row_ptr ? a.row_ptr[list] : 0, end = a.row_ptr ? a.row_ptr[list + 1] : k_tiles;
  auto tile_at = [&](int i) { return i >= end ? 0 : a.row_ptr ? a.tile_index[i] : i; };
  auto code_at = [&](int i) { return i >= end || !a.row_ptr ? -1 : a.tile_code[i]; };

  // This thread's rows of the tile, and in units of log2 their running maximum and its share of their sum.
  const int r0 = warp * 16 + lane / 4, r1 = r0 + 8;
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f}, out[Width / 8][4] = {};
  uint32_t query[Keep ? Steps : 1][4];
  const float scale = a.scale * kLog2e;

  int tile = tile_at(begin), code = code_at(begin), next_tile = tile_at(begin + 1), next_code = code_at(begin + 1);
  if (begin < end) {
    load_tile<T, Width>(q_tile, q, row0, a.seq_q, a.head_dim);
    load_tile<T, Width>(k_tile, k, tile * kTile, a.seq_k, a.head_dim);
    if constexpr (Double) load_tile<T, Width>(v_tile, v, tile * kTile, a.seq_k, a.head_dim);
  }
  async_copy::commit();

  for (int i = begin, stage = 0; i < end; ++i) {
    char* const keys = k_tile + (Double ? stage * Bytes : 0);
    char* const values = v_tile + (Double ? stage * Bytes : 0);
    // Which keys each of the two rows sees; asked for before the wait, needed after the scores.
    const int first = tile * kTile, live = a.seq_k - first < kTile ? a.seq_k - first : kTile;
    const uint64_t edge = live == kTile ? ~0ull : (1ull << live) - 1;
    uint64_t word0 = edge, word1 = edge;
    const bool partial = code >= 0 || live < kTile;
    if (code >= 0) {
      word0 = a.bitmaps[int64_t(code) * kTile + r0];
      word1 = a.bitmaps[int64_t(code) * kTile + r1];
    }
    const int soon_tile = tile_at(i + 2), soon_code = code_at(i + 2);

    async_copy::wait<0>();
    __syncthreads();  // this tile is there, and everybody is done with what the next loads overwrite
    if constexpr (Double) {
      if (i + 1 < end) {
        load_tile<T, Width>(k_tile + (stage ^ 1) * Bytes, k, next_tile * kTile, a.seq_k, a.head_dim);
        load_tile<T, Width>(v_tile + (stage ^ 1) * Bytes, v, next_tile * kTile, a.seq_k, a.head_dim);
      }
    } else {
      load_tile<T, Width>(values, v, first, a.seq_k, a.head_dim);
    }
    async_copy::commit();
    if constexpr (Keep) {
      if (i == begin) {
#pragma unroll
        for (int s = 0; s < Steps; ++s)
          ldmatrix_x4(query[s], shared_address(q_tile + place<Width>(warp * 16 + lane % 16, 2 * s + lane / 16)));
      }
    }

    // Scores: 16 rows x 64 keys, eight accumulators of 8 keys.
    float score[8][4] = {};
#pragma unroll
    for (int s = 0; s < Steps; ++s) {
      if constexpr (!Keep) ldmatrix_x4(query[0], shared_address(q_tile + place<Width>(warp * 16 + lane % 16, 2 * s + lane / 16)));
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        uint32_t key[4];
        ldmatrix_x4(key, shared_address(keys + place<Width>(n * 16 + lane % 8 + 8 * (lane / 16), 2 * s + (lane / 8) % 2)));
        mma_m16n8k16<T>(score[2 * n], query[Keep ? s : 0], {key[0], key[1]});
        mma_m16n8k16<T>(score[2 * n + 1], query[Keep ? s : 0], {key[2], key[3]});
      }
    }
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) score[n][e] *= scale;
    if (a.bias) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = row0 + (e < 2 ? r0 : r1);
        const int64_t at = b * a.bias_stride[0] + head * a.bias_stride[1] + row * a.bias_stride[2];
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          const int column = first + 8 * n + 2 * pair + (e & 1);
          if (row < a.seq_q && column < a.seq_k) score[n][e] += kLog2e * bias_at(a, at + column * a.bias_stride[3]);
        }
      }
    }
    if (partial) {
      word0 >>= 2 * pair;
      word1 >>= 2 * pair;
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (!((e < 2 ? word0 : word1) >> (8 * n + (e & 1)) & 1)) score[n][e] = -INFINITY;
    }

    // Online softmax over the four lanes that share a row.
    float shrink[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = maximum[h];
#pragma unroll
      for (int n = 0; n < 8; ++n) top = fmaxf(top, fmaxf(score[n][2 * h], score[n][2 * h + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      const float base = top == -INFINITY ? 0.f : top;  // -inf minus -inf would be NaN
      shrink[h] = exp2_approx(maximum[h] - base);
      maximum[h] = top;
      float total = 0.f;
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) total += score[n][2 * h + e] = exp2_approx(score[n][2 * h + e] - base);
      sum[h] = sum[h] * shrink[h] + total;
    }
#pragma unroll
    for (int n = 0; n < Width / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) out[n][e] *= shrink[e / 2];

    if constexpr (!Double) {
      async_copy::wait<0>();
      __syncthreads();  // V is there, and everybody is done with K
      if (i + 1 < end) load_tile<T, Width>(k_tile, k, next_tile * kTile, a.seq_k, a.head_dim);
      async_copy::commit();
    }
#pragma unroll
    for (int s = 0; s < 4; ++s) {  // 16 keys a step
      const uint32_t weights[4] = {pack<T>(score[2 * s][0], score[2 * s][1]), pack<T>(score[2 * s][2], score[2 * s][3]),
                                   pack<T>(score[2 * s + 1][0], score[2 * s + 1][1]), pack<T>(score[2 * s + 1][2], score[2 * s + 1][3])};
#pragma unroll
      for (int n = 0; n < Width / 16; ++n) {
        uint32_t value[4];
        ldmatrix_x4_trans(value, shared_address(values + place<Width>(16 * s + lane % 16, 2 * n + lane / 16)));
        mma_m16n8k16<T>(out[2 * n], weights, {value[0], value[1]});
        mma_m16n8k16<T>(out[2 * n + 1], weights, {value[2], value[3]});
      }
    }
    tile = next_tile, code = next_code, next_tile = soon_tile, next_code = soon_code;
    if constexpr (Double) stage ^= 1;
  }

  // Each warp turns its 16 rows through its own part of the query tile into 16-byte stores.
  __syncwarp();  // every lane's reads of the query rows come before the others' writes over them
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 1);
    sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
    const float inverse = sum[h] == 0.f ? 0.f : 1.f / sum[h];  // rows without a live key are zeros
#pragma unroll
    for (int n = 0; n < Width / 8; ++n)
      *reinterpret_cast<uint32_t*>(q_tile + place<Width>(h ? r1 : r0, n) + 4 * pair) = pack<T>(out[n][2 * h] * inverse, out[n][2 * h + 1] * inverse);
  }
  __syncwarp();
  T* const to = static_cast<T*>(a.out) + ((int64_t(b) * a.heads + head) * a.seq_q + row0) * a.head_dim;
  for (int piece = lane; piece < 16 * (Width / 8); piece += 32) {
    const int r = warp * 16 + piece / (Width / 8), c = piece % (Width / 8);
    if (row0 + r < a.seq_q && 8 * c < a.head_dim)
      *reinterpret_cast<uint4*>(to + int64_t(r) * a.head_dim + 8 * c) = *reinterpret_cast<const uint4*>(q_tile + place<Width>(r, c));
  }
}

bool has_vectors(const void* p, const int64_t (&stride)[4]) {
  bool good = reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride[3] == 1;
  for (int i = 0; i < 3; ++i) good = good && stride[i] % 8 == 0;
  return good;
}

template <typename T, int Width> const char* launch(const AttentionArgs& a, unsigned grid, cudaStream_t stream) {
  constexpr int tiles = Width <= 128 ? 5 : 3, bytes = tiles * kTile * Width * 2;
  static std::atomic<uint64_t> allowed{0};  // a bit a device: more than 48 KB of shared memory has to be asked for once on each
  int device = 0;
  cudaGetDevice(&device);
  const uint64_t bit = uint64_t(1) << (device & 63);
  if (!(allowed.load(std::memory_order_relaxed) & bit)) {
    cudaError_t status = cudaFuncSetAttribute(attention_blockwise<T, Width>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (status != cudaSuccess) return cudaGetErrorString(status);
    allowed.fetch_or(bit, std::memory_order_relaxed);
  }
  const int vectors = has_vectors(a.q, a.q_stride) | has_vectors(a.k, a.k_stride) << 1 | has_vectors(a.v, a.v_stride) << 2;
  attention_blockwise<T, Width><<<grid, kThreads, bytes, stream>>>(a, vectors);
  return launch_error();
}

template <typename T> const char* by_width(const AttentionArgs& a, unsigned grid, cudaStream_t stream) {
  if (a.head_dim <= 32) return launch<T, 32>(a, grid, stream);
  if (a.head_dim <= 64) return launch<T, 64>(a, grid, stream);
  if (a.head_dim <= 96) return launch<T, 96>(a, grid, stream);
  if (a.head_dim <= 128) return launch<T, 128>(a, grid, stream);
  if (a.head_dim <= 160) return launch<T, 160>(a, grid, stream);
  if (a.head_dim <= 192) return launch<T, 192>(a, grid, stream);
  return launch<T, 256>(a, grid, stream);
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionArgs* args, void* stream_) {
  const AttentionArgs& a = *args;
  if (a.head_dim % 8 || a.head_dim < 32 || a.head_dim > 256) return "unsupported: head_dim (a multiple of 8 from 32 to 256 is)";
  const int64_t grid = int64_t(a.batch) * a.heads * ((a.seq_q + kTile - 1) / kTile);
  if (grid > INT32_MAX) return "unsupported: more than 2^31 tiles of 64 query rows";
  auto stream = static_cast<cudaStream_t>(stream_);
  switch (a.dtype) {
    case FS_FLOAT16: return by_width<__half>(a, unsigned(grid), stream);
    case FS_BFLOAT16: return by_width<__nv_bfloat16>(a, unsigned(grid), stream);
  }
  return "unsupported: float32 on the tensor-core path, which multiplies float16 and bfloat16 (v2_blockwise_fp32 and v1_rowwise take float32)";
}
