// Producer warps: walk through the block's items, merge the tile lists of their query tiles into steps of a KV tile,
// and copy queries, keys and values as stages are released, across the bounds of items.
#pragma once
#include <cfloat>

#include "../common/exp2.cuh"
#include "../common/tickets.cuh"
#include "shared.cuh"

namespace fp8 {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kNone = 0x7fffffff;

// Items, query blocks of WG tiles, in the order in which blocks take them: `together` heads after one another, whose
// keys and values fit into the L2 cache, and of these the longest lists first. A block begins with that of its own
// number and draws each further one as soon as a stage of queries is left (../common/tickets.cuh), so that no block
// waits for one with longer items.
struct Items {
  int count, q_blocks, heads, together;
  uint64_t tag;

  // The item of a round, -1 for the end; by a lane. All blocks begin, so as many draw to the end as there are items.
  __device__ __forceinline__ int of(const AttentionFp8Args& args, uint32_t round) const {
    const uint64_t item = round ? gridDim.x + draw(args.next, tag, uint64_t(count)) : blockIdx.x;
    return item < uint64_t(count) ? int(item) : -1;
  }
  __device__ __forceinline__ int2 head_and_block(int item, bool causal) const {
    const int group = item / (together * q_blocks), first = group * together;
    const int size = heads - first < together ? heads - first : together;
    const int in_group = item - first * q_blocks, block = in_group / size;
    return make_int2(first + in_group % size, causal ? q_blocks - 1 - block : block);
  }
};

// What an item is about.
struct Item {
  int head, q_block, b, h, kv;
  __device__ __forceinline__ Item(const AttentionFp8Args& args, const Items& items, int item) {
    const int2 at = items.head_and_block(item, args.causal);
    head = at.x, q_block = at.y;
    b = head / args.heads, h = head % args.heads;
    kv = b * args.heads_kv + h / (args.heads / args.heads_kv);
  }
};

__device__ __forceinline__ int tiles_of(int rows) { return (rows + FP8_TILE - 1) / FP8_TILE; }

// The tile list of a query tile, by one lane of the producer warp: the entry at hand, the next and the tile and code
// of the one after, because memory is half a microsecond away.
struct List {
  int begin = 0, count = 0, at = 0;
  int tile = kNone, code = kDead, tile1 = kNone, code1 = kDead, tile2 = kNone, code2 = kDead;
  float scale = 0.f, scale1 = 0.f;

  // Of no query tile where that is beyond the last.
  __device__ __forceinline__ List(const AttentionFp8Args& args, const Item& item, int q_tile) {
    const int q_tiles = tiles_of(args.seq_q);
    if (q_tile >= q_tiles) return;
    if (args.row_ptr) {
      const int64_t list = int64_t(item.b * args.mask_stride_b + item.h * args.mask_stride_h) * q_tiles + q_tile;
      begin = args.row_ptr[list];
      count = args.row_ptr[list + 1] - begin;
    } else {
      const int rows = q_tile * FP8_TILE + FP8_TILE < args.seq_q ? q_tile * FP8_TILE + FP8_TILE : args.seq_q;
      const int diagonal = rows + args.seq_k - args.seq_q,
                seen = args.causal && diagonal < args.seq_k ? diagonal : args.seq_k;
      count = seen > 0 ? tiles_of(seen) : 0;
    }
  }
  __device__ __forceinline__ void open(const AttentionFp8Args& args, const float* scales) {
    read(args, 0, tile, code);
    read(args, 1, tile1, code1);
    read(args, 2, tile2, code2);
    scale = tile == kNone ? 0.f : scales[tile];
    scale1 = tile1 == kNone ? 0.f : scales[tile1];
  }
  __device__ __forceinline__ void read(const AttentionFp8Args& args, int i, int& tile, int& code) const {
    tile = i >= count ? kNone : args.row_ptr ? args.tile_index[begin + i] : i;
    code = i < count && args.row_ptr ? args.tile_code[begin + i] : -1;
  }
  __device__ __forceinline__ void advance(const AttentionFp8Args& args, const float* scales) {
    ++at;
    tile = tile1, code = code1, scale = scale1;
    tile1 = tile2, code1 = code2;
    scale1 = tile1 == kNone ? 0.f : scales[tile1];
    read(args, at + 2, tile2, code2);
  }
};

// By a warp: draws the items, and loads the queries of each and says what it is about.
template <typename S> __device__ __forceinline__ void produce_queries(const AttentionFp8Args& args, const Items& items,
                                                                      const Memory<S>& memory) {
  const int lane = threadIdx.x % 32, q_tiles = tiles_of(args.seq_q);
  for (uint32_t round = 0;; ++round) {
    const int number = __shfl_sync(kAll, lane == 0 ? items.of(args, round) : 0, 0);
    memory.items.await_empty(round);
    if (lane == 0) {
      *reinterpret_cast<int*>(memory.items.at(round)) = number;
      hopper::barrier_arrive(memory.items.full_of(round), 1);
    }
    memory.q.await_empty(round);
    uint64_t* const full = memory.q.full + round % S::q_stages;
    Round& info = memory.rounds[round % S::q_stages];
    if (number < 0) {
      if (lane == 0) {
        info = {-1, 0, 0};
        hopper::barrier_arrive(full, 1);
      }
      return;
    }
    const Item item(args, items, number);
    const int first = item.q_block * S::WG, left = q_tiles - first;
    const bool any = __any_sync(kAll, lane < S::WG && List(args, item, first + lane).count > 0);
    if (lane != 0) continue;
    info = {item.head, item.q_block, any};
    const int bytes = (left < S::WG ? left : S::WG) * S::tile_bytes;
    hopper::barrier_expect(full, bytes);
    hopper::load_bytes(memory.q.at(round), args.q8 + (int64_t(item.head) * q_tiles + first) * S::tile_bytes, bytes,
                       full);
  }
}

// By a warp: keys and values of the steps of each item. Lane w merges the list of query tile w.
template <typename S> __device__ __forceinline__ void produce_keys(const AttentionFp8Args& args, const Items& items,
                                                                   const Memory<S>& memory) {
  constexpr int WG = S::WG;
  const int lane = threadIdx.x % 32, q_tiles = tiles_of(args.seq_q), k_tiles = tiles_of(args.seq_k);
  const auto load = [](const auto& ring, uint32_t step, const uint8_t* from) {
    hopper::barrier_expect(ring.full_of(step), S::tile_bytes);
    hopper::load_bytes(ring.at(step), from, S::tile_bytes, ring.full_of(step));
  };
  uint32_t step = 0;
  for (uint32_t round = 0;; ++round) {
    memory.items.await_full(round);
    const int number = *reinterpret_cast<const int*>(memory.items.at(round));
    memory.items.release(round);
    if (number < 0) return;
    const Item item(args, items, number);
    const int q_tile = lane < WG ? item.q_block * WG + lane : q_tiles;
    const float* const scales = args.k_scale + int64_t(item.kv) * k_tiles;
    const float q_factor =
        q_tile < q_tiles ? args.scale * kLog2e * args.q_scale[int64_t(item.head) * q_tiles + q_tile] : 0.f;
    List list(args, item, q_tile);
    list.open(args, scales);
    // Whole tiles from here on are masked by index.
    const int seen = args.causal ? q_tile * FP8_TILE + args.seq_k - args.seq_q + 1 : args.seq_k;
    const int whole = (seen < args.seq_k ? seen : args.seq_k) / FP8_TILE;  // of a negative number: none
    int next = __reduce_min_sync(kAll, list.tile);
    const auto load_values = [&](uint32_t of, int tile) {
      memory.v.await_empty(of);
      if (lane == 0) load(memory.v, of, args.v8 + (int64_t(item.kv) * k_tiles + tile) * S::tile_bytes);
    };
    int before = kNone;
#pragma unroll 1
    for (; next != kNone; ++step) {
      const int tile = next;
      const bool mine = list.tile == tile;
      const Codes codes{!mine                              ? kDead
                        : list.code == -1 && tile >= whole ? kByIndex
                                                           : list.code,
                        fmaxf(q_factor * list.scale, FLT_MIN)};
      if (mine) list.advance(args, scales);
      next = __reduce_min_sync(kAll, list.tile);
      memory.k.await_empty(step);
      Step<WG>& info = memory.steps[step % S::k_stages];
      if (lane < WG) info.codes[lane] = codes;
      if (lane == 0) info.tile = tile, info.last = next == kNone;
      __syncwarp();
      if (lane == 0) load(memory.k, step, args.k8 + (int64_t(item.kv) * k_tiles + tile) * S::tile_bytes);
      // Values of a step come after the keys of the next, which are needed first.
      if (before != kNone) load_values(step - 1, before);
      before = tile;
    }
    if (before != kNone) load_values(step - 1, before);
  }
}

}  // namespace fp8
