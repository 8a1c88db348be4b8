// The bias of a step's scores, 64 rows x 128 keys of a warpgroup.
//
// In pieces of 16 bytes, where it is of the inputs' type and its rows begin at multiples of 16 bytes, it is fetched a
// step ahead: of a step's keys the first Parked by cp.async to shared memory, where each warp has its own 16 rows, and
// the others, in pairs, to registers. Otherwise its elements are read once the scores are there.
#pragma once
#include "../common/async_copy.cuh"
#include "../common/launch.cuh"
#include "../common/mma.cuh"
#include "attention.cuh"
#include "hopper_scored.cuh"

namespace hopper {

// With a bias, and maybe a soft-cap, an expression or sinks. Pieces: has_pieces of it.
template <bool Pieces> struct BiasedArgs : ScoredArgs {};
template <typename Args> constexpr bool kPieces = std::is_same_v<Args, BiasedArgs<true>>;
template <typename Args> constexpr bool kBiased = kPieces<Args> || std::is_same_v<Args, BiasedArgs<false>>;

template <bool Pieces> __device__ __forceinline__ float to_powers_of_two(const BiasedArgs<Pieces>&) { return kLog2e; }

// Whether a bias can be fetched in pieces.
inline bool has_pieces(const AttentionArgs& args) {
  bool pieces =
      args.bias_dtype == args.dtype && args.bias_stride[3] == 1 && reinterpret_cast<uintptr_t>(args.bias) % 16 == 0;
  for (int i = 0; i < 3; ++i) pieces = pieces && args.bias_stride[i] % 8 == 0;
  return pieces;
}

// Bytes of shared memory for each warp: piece by piece of 8 keys 16 rows, so that neither copies nor reads of eight
// rows have bank conflicts.
template <int Parked> constexpr int kParkedBytes = Parked / 8 * 16 * 16;
// The other keys' pairs of a thread's two rows.
template <int Parked> constexpr int kBiasWords = Parked == 128 ? 1 : 32 - Parked / 4;

// The same number or address, but as one that the compiler does not know: what depends on it is computed again each
// time, instead of staying in registers from step to step.
__device__ __forceinline__ int again(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
template <typename T> __device__ __forceinline__ const T* again(const T* p) {
  asm volatile("" : "+l"(p)::"memory");
  return p;
}

// By a whole warp that has read what was fetched before. rows: the warp's first row of the bias; left: how many rows
// there are from it on; tiles: the step's two KV tiles.
template <typename T, int Parked>
__device__ __forceinline__ void fetch_bias(const AttentionArgs& args, const T* rows, int left, int lane, int2 tiles,
                                           uint8_t* parked, uint32_t (&words)[kBiasWords<Parked>]) {
  static_assert(Parked % 32 == 0);
  const int64_t stride = args.bias_stride[2];
  if constexpr (Parked > 0) {
    const int row = again(lane) % 8, column = again(lane) / 8;
    const uint32_t to = tensor_core::shared_address(parked) + column * 256 + row * 16;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const T* from = rows + (row + 8 * half) * stride;
#pragma unroll
      for (int four = 0; four < Parked / 32; ++four) {
        const int key = 64 * (four < 2 ? tiles.x : tiles.y) + 32 * (four % 2) + 8 * column;
        const int bytes = row + 8 * half < left ? 2 * (args.seq_k - key) : 0;
        async_copy::copy16_partial(to + 4 * four * 256 + 8 * half * 16, bytes > 0 ? from + key : args.bias,
                                   bytes > 16  ? 16
                                   : bytes > 0 ? bytes
                                               : 0);
      }
    }
    async_copy::commit();
  }
  if constexpr (Parked < 128) {
    const int row = again(lane) / 4, column = again(lane) % 4 * 2;
    const T* from = rows + row * stride + column;
    auto read = [&](auto pair) {
#pragma unroll
      for (int j = Parked / 8; j < 16; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          words[2 * (j - Parked / 8) + r] = pair(8 * r, 64 * (j < 8 ? tiles.x : tiles.y) + 8 * (j % 8));
    };
    const int last = tiles.x > tiles.y ? tiles.x : tiles.y;
    if (left >= 16 && 64 * last + 64 <= args.seq_k) {
      read([&](int down, int key) { return *reinterpret_cast<const uint32_t*>(from + down * stride + key); });
    } else {
      read([&](int down, int key) -> uint32_t {
        const int keys = row + down < left ? args.seq_k - key - column : 0;
        if (keys > 1) return *reinterpret_cast<const uint32_t*>(from + down * stride + key);
        return keys > 0 ? *reinterpret_cast<const uint16_t*>(from + down * stride + key) : 0;
      });
    }
  }
}

__device__ __forceinline__ float2 both(__half, uint32_t word) {
  return {__half2float(reinterpret_cast<const __half*>(&word)[0]),
          __half2float(reinterpret_cast<const __half*>(&word)[1])};
}
__device__ __forceinline__ float2 both(__nv_bfloat16, uint32_t word) {
  return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
}

// x = x scale + what fetch_bias fetched.
template <typename T, int Parked>
__device__ __forceinline__ void add_fetched_bias(float (&x)[64], float scale, int lane, const uint8_t* parked,
                                                 const uint32_t (&words)[kBiasWords<Parked>]) {
  if constexpr (Parked > 0) {
    async_copy::wait<0>();
    __syncwarp();
    parked += again(lane) / 4 * 16 + again(lane) % 4 * 4;
  }
#pragma unroll
  for (int j = 0; j < 16; ++j) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      uint32_t word;
      if (j < Parked / 8)
        word = *reinterpret_cast<const uint32_t*>(parked + j * 256 + 8 * r * 16);
      else
        word = words[2 * (j - Parked / 8) + r];
      const float2 two = both(T{}, word);
      x[4 * j + 2 * r] = fmaf(x[4 * j + 2 * r], scale, two.x);
      x[4 * j + 2 * r + 1] = fmaf(x[4 * j + 2 * r + 1], scale, two.y);
    }
  }
  if constexpr (Parked > 0) __syncwarp();
}

// x = x scale + a bias of type B, element by element; of the rows beyond the last, the last. row: the thread's first.
template <typename B> __device__ __forceinline__ void add_bias_as(float (&x)[64], float scale,
                                                                  const AttentionArgs& args, int64_t head, int row,
                                                                  int column, int2 tiles) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int down = again(row) + 8 * (n % 2), first = 64 * (n / 2 ? tiles.y : tiles.x) + column;
    const B* from = static_cast<const B*>(args.bias) + head +
                    (down < args.seq_q ? down : args.seq_q - 1) * args.bias_stride[2] + first * args.bias_stride[3];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float extra[2] = {};
      const int keys = args.seq_k - first - 8 * i;
      if (keys > 0) extra[0] = to_float(from[0]);
      if (keys > 1) extra[1] = to_float(from[args.bias_stride[3]]);
      from = again(from + 8 * args.bias_stride[3]);
      float* two = x + 32 * (n / 2) + 4 * i + 2 * (n % 2);
      two[0] = fmaf(two[0], scale, extra[0]);
      two[1] = fmaf(two[1], scale, extra[1]);
    }
  }
}
template <typename T> __device__ __forceinline__ void add_bias(float (&x)[64], float scale, const AttentionArgs& args,
                                                               int64_t head, int row, int column, int2 tiles) {
  if (args.bias_dtype == FS_FLOAT32)
    add_bias_as<float>(x, scale, args, head, row, column, tiles);
  else
    add_bias_as<T>(x, scale, args, head, row, column, tiles);
}

}  // namespace hopper
