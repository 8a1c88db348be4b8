// One product of a layer by all blocks: rows in shared memory times the weights that come through the ring.
//
// The weight is the right operand of mma.sync, eight outputs of it, the rows the left one. A product's sum does not
// mind the order of its columns: a thread's 16 bytes of a weight's row, and of a row, are eight neighbouring columns of
// two products of 16 (as in cuda/linear/sixteen_rows.cuh). The warps' sums are added in one fixed order.
#pragma once
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
  const T* residual;  // `width` per row
  T* out;
  int width;
  bool activated;
  int activation;
};

// in: `rows` rows in shared memory; parts: SCRATCH bytes of it. at: what comes next in the ring.
template <typename T> __device__ __forceinline__ void product(const Ring& ring, RingPosition& at, const T* in,
                                                              float* parts, int rows, const Shape& shape,
                                                              const Finish<T>& f, int turn) {
  const int warp = hopper::uniform(threadIdx.x / 32), g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int blocks = gridDim.x;
  const int of = threadIdx.x / 64, r = threadIdx.x % 64 / 8, c = threadIdx.x % 8;
  const bool gated = f.activated && f.activation == DECODER_SWIGLU, there = g < rows;
  const int column = warp * 32 + t * 8, terms = shape.terms, tiles = shape.tiles;
  const T* const row = in + (there ? g : 0) * shape.pitch + column;
  const unsigned char* const stages = ring.stages + g * STAGE_PITCH + column * 2;
  int buffer = 0;
#pragma unroll 1
  for (int first = first_tile(turn); first < tiles; first += CHUNK * blocks, buffer ^= 1) {
    // The result that this thread finishes; what it needs besides the sum is asked for before that is there.
    const int tile = first + of * blocks, n = gated ? tile * 4 + c : tile * 8 + c;
    const bool mine = tile < tiles && r < rows && !(gated && c >= 4);
    T bias{}, up_bias{}, residual{};
    if (mine && f.bias) bias = f.bias[n];
    if (mine && f.bias && gated) up_bias = f.bias[f.width + n];
    if (mine && f.residual) residual = cooperative::load(f.residual + r * f.width + n);
    float* const to = parts + buffer * CHUNK * WARPS * 64 + (g * 8 + 2 * t) * WARPS + warp;
#pragma unroll 1
    for (int j = 0; j < CHUNK && first + j * blocks < tiles; ++j) {
      float sum[4][4] = {};
#pragma unroll 1
      for (int begin = 0; begin < terms; begin += COLUMNS) {
        uint4 w[PIECES], x[PIECES];
        const int left = terms - begin - warp * 32;  // columns from this warp's first on
        hopper::barrier_wait(ring.full + at.stage, at.parity);
#pragma unroll
        for (int k = 0; k < PIECES; ++k) {  // zeros past the last column
          const bool inside = k * WARPS * 32 < left;
          w[k] = x[k] = {0, 0, 0, 0};
          if (inside) w[k] = *reinterpret_cast<const uint4*>(stages + at.stage * STAGE_BYTES + k * WARPS * 64);
          if (inside && there) x[k] = *reinterpret_cast<const uint4*>(row + begin + k * WARPS * 32);
        }
#pragma unroll
        for (int k = 0; k < PIECES; ++k) {
          const uint32_t a[2][4] = {{x[k].x, 0, x[k].y, 0}, {x[k].z, 0, x[k].w, 0}};
          const uint32_t b[2][2] = {{w[k].x, w[k].y}, {w[k].z, w[k].w}};
          tensor_core::mma_m16n8k16<T>(sum[k % 2 * 2], a[0], b[0]);
          tensor_core::mma_m16n8k16<T>(sum[k % 2 * 2 + 1], a[1], b[1]);
        }
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
    auto whole = [&](const float* from, float v) {
#pragma unroll
      for (int w = 0; w < WARPS; w += 4) {
        const float4 four = *reinterpret_cast<const float4*>(from + w);
        v += (four.x + four.y) + (four.z + four.w);
      }
      return v;
    };
    float v = whole(part, to_float(bias));
    auto power = [](float u) { return exp2_approx(u * kLog2e); };
    if (gated)
      v = silu(rounded<T>(v), power, reciprocal_approx) * rounded<T>(whole(part + 4 * WARPS, to_float(up_bias)));
    else if (f.activated)
      v = f.activation == DECODER_GELU_TANH ? gelu_tanh(v, power) : gelu_erf(v, power);
    cooperative::publish(f.out + r * f.width + n, from_float<T>(v + to_float(residual)));
  }
}

}  // namespace decoder
