// The weights of all products of all layers as one stream, through a ring in shared memory.
//
// A tile is eight outputs of a product; tiles of successive products are dealt to blocks in turn, so that a block's
// share is even over a layer where it is not within a product. A stage of the ring is up to ROW_BYTES of a tile's rows.
// Producer warps load them by bulk copies, as far ahead as the ring has room: weights of later products and layers come
// while activations are still being computed.
#pragma once
#include "../common/bulk_copy.cuh"
#include "step.cuh"

namespace decoder {
constexpr int ROW_BYTES = 2048, PIECES = ROW_BYTES / (64 * WARPS);  // of 64 bytes a row: a warp's of a stage
constexpr int STAGE_PITCH = ROW_BYTES + 64;                         // bytes; as pitch_of() has it
constexpr int STAGE_BYTES = 8 * STAGE_PITCH, STAGES = 8;
constexpr int RING_BYTES = STAGES * (STAGE_BYTES + 16);
constexpr int PRODUCER_WARPS = 4;  // each copies its rows of every tile
constexpr int IN_FLIGHT = 3;       // stages that are requested and not there: fewer and more were slower

struct Ring {
  unsigned char* stages;
  uint64_t *full, *empty;

  __device__ __forceinline__ explicit Ring(unsigned char* memory)
      : stages(memory), full(reinterpret_cast<uint64_t*>(memory + STAGES * STAGE_BYTES)), empty(full + STAGES) {}
  // By one thread, before any other.
  __device__ __forceinline__ void open() {
    for (int i = 0; i < STAGES; ++i) hopper::barrier_init(full + i, 1), hopper::barrier_init(empty + i, WARPS);
    hopper::barrier_init_fence();
  }
};

// The stage that comes next, and the parity of the ring's round.
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void pass() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

// Asks for the norms, biases and scales of a layer, each line of them by one block: into the L2 cache. By one warp.
template <typename T> __device__ __forceinline__ void prefetch_vectors(const Step& s, const DecoderLayer& layer) {
  const void* const* const from = &layer.norm1;
  const int at = int(blockIdx.x + gridDim.x * (threadIdx.x % 32)) * 64;
#pragma unroll 1
  for (int i = 0; i < VECTORS; ++i)
    if (from[i] && at < s.vector[i]) prefetch(static_cast<const T*>(from[i]) + at);
}

// The producer warps: fill the ring, and prefetch what else a layer needs. keys(layer): prefetches the layer's keys.
template <typename T, int Format, typename Keys>
__device__ __forceinline__ void produce_weights(const Step& s, const DecoderLayer* layers, const Ring& ring,
                                                Keys keys) {
  constexpr int rows = 8 / PRODUCER_WARPS, bytes_of_weight = Format == kDecoderAsX ? 2 : 1;
  const int warp = threadIdx.x / 32 - WARPS, lane = threadIdx.x % 32, row = warp * rows + lane % rows;
  const bool gated_step = s.activation == DECODER_SWIGLU;
  RingPosition at, arriving;
  int turn = 0, requested = 0;
  bool again = false;  // the ring has been full
#pragma unroll 1
  for (int i = 0; i < 4 * s.layers; ++i) {
    const DecoderLayer& l = layers[i / 4];
    const int next = i ? i / 4 + 1 : 0;
    if (i % 4 == 0 && warp == PRODUCER_WARPS - 1 && next < s.layers) prefetch_vectors<T>(s, layers[next]);
    if (i % 4 == 0) keys(l);
    const void* const of = i % 4 == 0 ? l.qkv : i % 4 == 1 ? l.output : i % 4 == 2 ? l.first : l.second;
    const Shape shape = s.shape[i % 4];
    const bool gated = i % 4 == 2 && gated_step;
#pragma unroll 1
    for (int tile = first_tile(turn); tile < shape.tiles; tile += gridDim.x) {
      const int64_t n = gated ? tile * 4 + row % 4 + (row < 4 ? 0 : s.ffn) : tile * 8 + row;
      const int row_bytes = shape.terms * bytes_of_weight;
      const unsigned char* const from = static_cast<const unsigned char*>(of) + n * row_bytes;
#pragma unroll 1
      for (int begin = 0; begin < row_bytes; begin += ROW_BYTES) {
        const uint32_t bytes = row_bytes - begin < ROW_BYTES ? row_bytes - begin : ROW_BYTES;
        if (again) hopper::barrier_wait(ring.empty + at.stage, at.parity ^ 1);
        if (requested < IN_FLIGHT) {
          ++requested;
        } else {
          hopper::barrier_wait(ring.full + arriving.stage, arriving.parity);
          arriving.pass();
        }
        if (warp == 0 && lane == 0) hopper::barrier_expect(ring.full + at.stage, 8 * bytes);
        if (lane < rows)
          hopper::load_bytes(ring.stages + at.stage * STAGE_BYTES + row * STAGE_PITCH, from + begin, bytes,
                             ring.full + at.stage);
        at.pass();
        again = again || at.stage == 0;
      }
    }
    turn = next_turn(turn, shape);
  }
}

}  // namespace decoder
