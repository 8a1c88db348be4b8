// One product of a layer by all blocks: rows in shared memory times the weights that come through the ring.
//
// The weight is the right operand of mma.sync, eight outputs of it, the rows the left one. A product's sum does not
// mind the order of its columns: a thread's 16 bytes of a weight's row are eight neighbouring columns of two products
// of 16 (as in cuda/linear/sixteen_rows.cuh), in 8 bits sixteen of four. The warps' sums are added in one fixed order.
#pragma once
#include "../common/eight_bit.cuh"
#include "../common/exp2.cuh"
#include "../common/gelu.h"
#include "../common/mma.cuh"
#include "../common/reciprocal.cuh"
#include "../common/silu.h"
#include "../common/warpgroup.cuh"
#include "weights.cuh"

namespace decoder {
constexpr int CHUNK = THREADS / 64;  // tiles of which a thread finishes one result
static_assert(2 * CHUNK * WARPS * 64 * 4 <= SCRATCH);

// What becomes of a product's sums. SwiGLU: a tile is four outputs of the gate and the same four of up.
template <typename T> struct Finish {
  const T* bias;
  const float* scales;  // of weights in 8 bits
  const T* residual;    // `width` per row
  T* out;
  int width;
  bool activated;
  int activation;
};

// Adds the products of a thread's 16 bytes of a weight's row with the same columns of a row. Products of 16 columns
// take the four sums in turn, so that none waits for the one before.
template <typename T, int Format, int Vectors>
__device__ __forceinline__ void multiply(float (&sum)[4][4], int piece, const uint4 (&x)[Vectors], const uint4& w) {
  const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
  for (int i = 0; i < 2 * Vectors; ++i) {
    const uint4& v = x[i / 2];
    const uint32_t a[4] = {i % 2 ? v.z : v.x, 0, i % 2 ? v.w : v.y, 0};
    uint32_t b[2];
    if constexpr (Format == kDecoderAsX)
      b[0] = words[2 * i], b[1] = words[2 * i + 1];
    else
      four_pairs<Format, T>(words[i], b);
    tensor_core::mma_m16n8k16<T>(sum[(piece * 2 + i) % 4], a, b);
  }
}

// in: `rows` rows in shared memory; parts: SCRATCH bytes of it. at: what comes next in the ring.
template <typename T, int Format>
__device__ __forceinline__ void product(const Ring& ring, RingPosition& at, const T* in, float* parts, int rows,
                                        const Shape& shape, const Finish<T>& f, int turn) {
  constexpr bool eight_bits = Format != kDecoderAsX;
  constexpr int each = eight_bits ? 16 : 8, columns = ROW_BYTES * each / 16;  // of a thread's 16 bytes; of a stage
  const int warp = hopper::uniform(threadIdx.x / 32), g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int blocks = gridDim.x;
  const int of = threadIdx.x / 64, r = threadIdx.x % 64 / 8, c = threadIdx.x % 8;
  const bool gated = f.activated && f.activation == DECODER_SWIGLU, there = g < rows;
  const int column = (warp * 4 + t) * each, terms = shape.terms, tiles = shape.tiles;
  const T* const row = in + (there ? g : 0) * shape.pitch + column;
  const unsigned char* const stages = ring.stages + g * STAGE_PITCH + (warp * 4 + t) * 16;
  int buffer = 0;
#pragma unroll 1
  for (int first = first_tile(turn); first < tiles; first += CHUNK * blocks, buffer ^= 1) {
    // The result that this thread finishes; what it needs besides the sum is asked for before that is there.
    const int tile = first + of * blocks, n = gated ? tile * 4 + c : tile * 8 + c;
    const bool mine = tile < tiles && r < rows && !(gated && c >= 4);
    T bias{}, up_bias{}, residual{};
    float scale = 1.0f, up_scale = 1.0f;
    if (eight_bits && mine) scale = f.scales[n];
    if (eight_bits && mine && gated) up_scale = f.scales[f.width + n];
    if (mine && f.bias) bias = f.bias[n];
    if (mine && f.bias && gated) up_bias = f.bias[f.width + n];
    if (mine && f.residual) residual = cooperative::load(f.residual + r * f.width + n);
    float* const to = parts + buffer * CHUNK * WARPS * 64 + (g * 8 + 2 * t) * WARPS + warp;
#pragma unroll 1
    for (int j = 0; j < CHUNK && first + j * blocks < tiles; ++j) {
      float sum[4][4] = {};
#pragma unroll 1
      for (int begin = 0; begin < terms; begin += columns) {
        constexpr int vectors = each / 8;
        uint4 w[PIECES], x[PIECES][vectors];
        const int left = terms - begin - (eight_bits ? column : warp * 32);  // columns from the first that may be there
        hopper::barrier_wait(ring.full + at.stage, at.parity);
#pragma unroll
        for (int k = 0; k < PIECES; ++k) {  // zeros past the last column
          const bool inside = k * WARPS * 4 * each < left;
          w[k] = {0, 0, 0, 0};
          if (inside) w[k] = *reinterpret_cast<const uint4*>(stages + at.stage * STAGE_BYTES + k * WARPS * 64);
#pragma unroll
          for (int v = 0; v < vectors; ++v) {
            x[k][v] = {0, 0, 0, 0};
            if (inside && there) x[k][v] = *reinterpret_cast<const uint4*>(row + begin + k * WARPS * 4 * each + v * 8);
          }
        }
#pragma unroll
        for (int k = 0; k < PIECES; ++k) multiply<T, Format>(sum, k, x[k], w[k]);
        __syncwarp();
        if (threadIdx.x % 32 == 0) hopper::barrier_arrive(ring.empty + at.stage, 1);
        at.pass();
      }
      if (there) {
        to[j * WARPS * 64] = sum[0][0] + sum[1][0] + (sum[2][0] + sum[3][0]);
        to[j * WARPS * 64 + WARPS] = sum[0][1] + sum[1][1] + (sum[2][1] + sum[3][1]);
      }
    }
    sync_consumers();
    if (!mine) continue;
    const float* const part = parts + (buffer * CHUNK + of) * WARPS * 64 + (r * 8 + c) * WARPS;
    auto whole = [&](const float* from, float by, float plus) {
      float v = eight_bits ? 0.0f : plus;
#pragma unroll
      for (int w = 0; w < WARPS; w += 4) {
        const float4 four = *reinterpret_cast<const float4*>(from + w);
        v += (four.x + four.y) + (four.z + four.w);
      }
      return eight_bits ? v * by + plus : v;
    };
    float v = whole(part, scale, to_float(bias));
    auto power = [](float u) { return exp2_approx(u * kLog2e); };
    if (gated)
      v = silu(rounded<T>(v), power, reciprocal_approx) *
          rounded<T>(whole(part + 4 * WARPS, up_scale, to_float(up_bias)));
    else if (f.activated)
      v = f.activation == DECODER_GELU_TANH ? gelu_tanh(v, power) : gelu_erf(v, power);
    cooperative::publish(f.out + r * f.width + n, from_float<T>(v + to_float(residual)));
  }
}

}  // namespace decoder
