// A bias of the scores in kernels on work items: 64 query rows x 64 keys of a warpgroup.
//
// Where the bias is as has_pieces (hopper_bias.cuh) says and keys are in their own order, a producer warp of its own
// loads it by TMA, the tiles of the steps that are live for each query tile, across the bounds of items. Otherwise, and
// where scores are computed again, its elements are read once the scores are there.
#pragma once
#include "hopper_bias.cuh"
#include "hopper_producer.cuh"

namespace hopper {

// Of one part of a call, the bias by tiles.
struct BiasTileArgs : BiasedItemArgs {
  CUtensorMap map;  // in the order of the part's rows
  int one_row;      // the bias has one row for all queries, and so has a tile
};
template <typename Args> constexpr ItemBias kItemBias = std::is_same_v<Args, BiasTileArgs> ? ItemBias::tiles
                                                        : kBiasedItems<Args>               ? ItemBias::elements
                                                                                           : ItemBias::none;

// The ring of tiles of a bias for the warpgroup of a team's query tile, behind the team's SharedStorage.
template <typename S> __device__ __forceinline__ auto bias_ring(const SharedStorage<S>& smem, int tile) {
  constexpr int kStages = S::bias_stages;
  uint64_t* const barriers = smem.out.empty + 1 + 2 * kStages * tile;
  return Ring<kStages, kTileBytes, 4>{smem.out.first + tile * kStages * kTileBytes, barriers, barriers + kStages};
}

// By the producer warp that loads the bias for team `number` of the grid: the same items and steps as
// produce_work_items. A query tile's warpgroup has no fill for a step that is dead for it.
template <typename S, typename Args>
__device__ __forceinline__ void produce_bias(const Args& args, const WorkItems& work, const SharedStorage<S>& smem,
                                             int number, Prefetched prefetched) {
  using E = Entry<S::tiles>;
  constexpr uint32_t kAll = 0xffffffff;
  const bool leader = threadIdx.x % 32 == 0;
  int turn = 0;
  uint32_t from = 0, fills[S::tiles] = {};
  int4 item = broadcast_item(prefetched.item, 0);
  if (!work.has_previous) wait_for_previous();
  while (item.x >= 0) {
    const uint32_t all = WorkItems::steps(item.w), steps = all - from < 32 ? all - from : 32;
    const bool ends = from + steps == all;
    const int b = item.y / args.heads, h = item.y - b * args.heads;
    const int4 entry = prefetched.entry;
    int4 following = item;
    if (ends) {
      if (++turn % 32 == 0) prefetched.item = work.item(turn + threadIdx.x % 32, number);
      following = broadcast_item(prefetched.item, turn);
    }
    const uint32_t next_from = ends ? 0 : from + 32;
    prefetched.entry = load_entry<S::tiles>(work, following, next_from);
#pragma unroll 1
    for (uint32_t i = 0; i < steps; ++i) {
      const int key = __shfl_sync(kAll, E::place(work, entry).x, i);
#pragma unroll
      for (int w = 0; w < S::tiles; ++w) {
        if (__shfl_sync(kAll, E::code(entry, w), i) == kDeadTile || !leader) continue;
        const auto ring = bias_ring(smem, w);
        uint64_t* const full = ring.full + fills[w] % S::bias_stages;
        ring.await_empty(fills[w]);
        barrier_expect(full, args.one_row ? 128 : kTileBytes);
        const int2 at = work.strided_index((S::tiles * WorkItems::group(item.x) + w) * 64);
        load_tile(ring.at(fills[w]), &args.map, full, key, args.one_row ? 0 : at.x, args.one_row ? 0 : at.y,
                  args.bias_stride[1] ? h : 0, args.bias_stride[0] ? b : 0);
        ++fills[w];
      }
    }
    item = following;
    from = next_from;
  }
}

// x = x scale + a tile of the bias, by all warps of a warpgroup.
template <typename T>
__device__ __forceinline__ void add_tile_of_bias(float (&x)[32], float scale, const uint8_t* tile, bool one_row) {
  // Lane i addresses row i % 8 of 8 x 8 matrix i / 8, so that a matrix holds what each thread's accumulators need.
  const int lane = threadIdx.x % 32, row = one_row ? 0 : WorkItems::warp_rows() + lane % 16;
  const uint32_t first = shared_address(tile) + row * 128 + ((lane / 16 ^ row % 8) << 4);
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    uint32_t words[4];
    tensor_core::ldmatrix_x4(words, first ^ n << 5);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = both(T{}, words[i]);
      float* const scores = x + 8 * n + 4 * (i / 2) + 2 * (i % 2);
      scores[0] = fmaf(scores[0], scale, two.x);
      scores[1] = fmaf(scores[1], scale, two.y);
    }
  }
}

// The same from global memory, keys in their own order, where the tile's place is filled again. rows: the thread's
// first row of the bias; down: elements from that to the second, eight further on; key: the thread's first; left: keys
// from that on.
template <typename T>
__device__ __forceinline__ void add_bias_again(float (&x)[32], float scale, const T* rows, int64_t down, int left) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const T* const from = rows + 8 * j;
      const uint32_t word = left - 8 * j > 1    ? *reinterpret_cast<const uint32_t*>(from)
                            : left - 8 * j == 1 ? *reinterpret_cast<const uint16_t*>(from)
                                                : 0;
      const float2 two = both(T{}, word);
      x[4 * j + 2 * r] = fmaf(x[4 * j + 2 * r], scale, two.x);
      x[4 * j + 2 * r + 1] = fmaf(x[4 * j + 2 * r + 1], scale, two.y);
    }
    rows += down;
  }
}

constexpr int kStagedKeys = 32, kStagedBytes = 4 * kWarpRows * kStagedKeys;  // of fp32, of a warp

// The bias of type B of a warp's 16 rows at one key of each lane to shared memory, where no two of eight rows that a
// warp reads at once have a bank in common. row: of lanes 0 to 15, their row; from: row 0 at the lane's key.
template <typename B>
__device__ __forceinline__ void stage_bias(float* staged, const B* from, int64_t stride, int row, bool exists) {
  const int lane = threadIdx.x % 32;
#pragma unroll 8
  for (int i = 0; i < kWarpRows; ++i) {
    const int64_t at = __shfl_sync(0xffffffffu, row, i) * stride;
    staged[i * kStagedKeys + (lane ^ i % 4 << 3)] = exists ? to_float(from[at]) : 0.f;
  }
}

// x = x scale + a bias of any type and layout, by a whole warp; of rows beyond the last, the last. head: the head's
// first element; position: the query tile's first row; place: index and residue of the tile's first key; staged:
// kStagedBytes of the warp's own.
template <typename T> __device__ __forceinline__ void add_elements_of_bias(float (&x)[32], const BiasedItemArgs& args,
                                                                           const WorkItems& work, int64_t head,
                                                                           int position, int2 place, float* staged) {
  const int thread = again(threadIdx.x), lane = thread % 32,
            at = position + thread / 32 % 4 * kWarpRows + lane % kWarpRows;
  const int row = work.row_of(at < args.seq_q ? at : args.seq_q - 1);
  const int left = args.seq_k - (place.y * work.k_length + place.x);  // keys from the tile's first on
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int n = kStagedKeys * half + lane, exists = n < left;
    const int key = place.x * args.k_modulus + place.y + (n & args.k_mask) * args.k_modulus + (n >> args.k_shift);
    const int64_t from = head + key * args.bias_stride[3];
    if (again(args.bias_dtype) == FS_FLOAT32)
      stage_bias(staged, static_cast<const float*>(args.bias) + from, args.bias_stride[2], row, exists);
    else
      stage_bias(staged, static_cast<const T*>(args.bias) + from, args.bias_stride[2], row, exists);
    __syncwarp();
    const float* const own = staged + lane / 4 * kStagedKeys + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float2 two = *reinterpret_cast<const float2*>(own + r * 8 * kStagedKeys + ((j ^ lane / 4 % 4) << 3));
        float* const scores = x + 16 * half + 4 * j + 2 * r;
        scores[0] = fmaf(scores[0], args.bias_scale, two.x);
        scores[1] = fmaf(scores[1], args.bias_scale, two.y);
      }
    __syncwarp();
  }
}

// nullptr when good, else what TMA lacks. args: those of the part; q_modulus: of its rows.
template <typename T> const char* load_by_tiles(const BiasedItemArgs& args, int64_t q_modulus, BiasTileArgs* to) {
  static_cast<BiasedItemArgs&>(*to) = args;
  to->one_row = args.bias_stride[2] == 0;
  const int64_t sizes[4] = {args.bias_stride[0] ? args.batch : 1, args.bias_stride[1] ? args.heads : 1,
                            to->one_row ? 1 : args.seq_q, args.seq_k};
  return make_ordered_map(&to->map, std::is_same_v<T, __nv_bfloat16>, args.bias, sizes, args.bias_stride,
                          to->one_row ? 1 : q_modulus, to->one_row ? 1 : 64);
}

}  // namespace hopper
