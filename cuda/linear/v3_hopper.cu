// Our own product with everything in its epilogue, GELU with erf too: ping-pong schedule, one warpgroup's epilogue
// overlaps with the other's product.
// archs: sm_90a
// expects: HGMMA UTMALDG UTMASTG
// emulated: no, the blocks of a cluster run at the same time and write to each other
//
// Persistent blocks of three warpgroups: a producer thread loads 128 x 64 boxes of x and of the weight by TMA into the
// pipeline stages, and two consumer warpgroups alternate in tiles of 128 x 128 results. One hands the pipeline over
// when its last product has been issued, so the tensor cores are busy during its epilogue, which at 768 terms takes two
// thirds as long as the product. The two blocks of a cluster compute tiles below one another; each loads half of their
// common weight box and multicasts it to both.
#include "../common/dependent.cuh"
#include "../common/roles.cuh"
#include "hopper_product.cuh"

namespace {
constexpr int TILE = 128, STEP = 64, STAGES = 6, CLUSTER = 2, CONSUMERS = 2;
constexpr int BOX_BYTES = TILE * STEP * 2, STAGE_BYTES = 2 * BOX_BYTES,
              STAGING_BYTES = 2 * kTileBytes;  // staging: per consumer warpgroup
constexpr int SHARED_BYTES = 1024 + STAGES * STAGE_BYTES + CONSUMERS * STAGING_BYTES + 256;

struct Tiles {
  int across, pairs;  // tiles along the outputs; that times pairs of tiles along the rows
  int steps;          // of 64 terms
};

template <typename T, int Activation, bool Residual>
__global__ void __launch_bounds__(128 * (1 + CONSUMERS), 1) linear_hopper(
    const __grid_constant__ CUtensorMap x_map, const __grid_constant__ CUtensorMap weight_map,
    const __grid_constant__ CUtensorMap out_map, const T* bias, const T* residual, int64_t residual_row, int rows,
    int outputs, Tiles tiles) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t raw[];
  uint8_t* shared = raw + (1024 - shared_address(raw) % 1024) % 1024;
  uint8_t* staging = shared + STAGES * STAGE_BYTES;
  uint64_t* full = reinterpret_cast<uint64_t*>(staging + CONSUMERS * STAGING_BYTES);
  uint64_t* empty = full + STAGES;
  uint64_t* handover = empty + STAGES;  // per consumer: the other has handed the pipeline over
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const uint32_t rank = cluster_rank();
  const int clusters = gridDim.x / CLUSTER, first = blockIdx.x / CLUSTER;

  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(full + s, 1);
      barrier_init(empty + s, 4 * CLUSTER);  // the four warps of the consumer, in both blocks
    }
    for (int w = 0; w < CONSUMERS; ++w) barrier_init(handover + w, 4);
    barrier_init_fence();
    prefetch_map(&x_map);
    prefetch_map(&weight_map);
    prefetch_map(&out_map);
  }
  cluster_barrier();
  wait_for_previous();
  let_next_start();

  if (warp < 4) {
    fewer_registers<40>();
    if (threadIdx.x == 0) {
      int stage = 0, parity = 1;  // waits for "empty" return at once on the first pass
      for (int pair = first; pair < tiles.pairs; pair += clusters) {
        const int row = (pair / tiles.across * CLUSTER + int(rank)) * TILE, output = pair % tiles.across * TILE;
        for (int step = 0; step < tiles.steps; ++step) {
          uint8_t* x = shared + stage * STAGE_BYTES;
          uint8_t* weight = x + BOX_BYTES;
          barrier_wait(empty + stage, parity);
          barrier_expect(full + stage, STAGE_BYTES);
          load_box(x, &x_map, full + stage, step * STEP, row);
          constexpr int rows_each = TILE / CLUSTER;
          load_box(weight + rank * (BOX_BYTES / CLUSTER), &weight_map, full + stage, step * STEP,
                   output + int(rank) * rows_each, (1 << CLUSTER) - 1);
          if (++stage == STAGES) stage = 0, parity ^= 1;
        }
      }
    }
  } else {
    more_registers<232>();
    const int consumer = warp / 4 - 1, t2 = 2 * (lane % 4), row_in_half = 16 * (warp % 4) + lane / 4;
    const bool elected = threadIdx.x % 128 == 0;
    uint8_t* buffers = staging + consumer * STAGING_BYTES;
    float sum[2][64];       // rows 0 to 63 of the tile, and 64 to 127
    int number = consumer;  // of the tile, within this block
    for (int pair = first + consumer * clusters; pair < tiles.pairs;
         pair += CONSUMERS * clusters, number += CONSUMERS) {
      const int row = (pair / tiles.across * CLUSTER + int(rank)) * TILE, output = pair % tiles.across * TILE;
      const int begin = number * tiles.steps;  // steps of the tiles before
      int stage = begin % STAGES, parity = begin / STAGES & 1, before = 0;
      auto release = [&](int which) {
        if (lane < CLUSTER) arrive_in_block(empty + which, lane);
      };
      uint32_t biases[16];  // of this thread's columns, prefetched
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const int column = output + 8 * j + t2;
        biases[j] = bias && column < outputs ? load_packed(bias + column) : 0;
      }
      barrier_wait(handover + consumer, (number / CONSUMERS + 1 + consumer) & 1);  // the first tile does not wait
      for (int step = 0; step < tiles.steps; ++step) {
        barrier_wait(full + stage, parity);
        const uint64_t x = tile_descriptor(shared + stage * STAGE_BYTES),
                       weight = tile_descriptor(shared + stage * STAGE_BYTES + BOX_BYTES);
        fence_registers(sum[0]);
        fence_registers(sum[1]);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < STEP / 16; ++i) {
          wgmma_64x128x16<T>(sum[0], x + i * kStepColumns, weight + i * kStepColumns, step > 0 || i > 0);
          wgmma_64x128x16<T>(sum[1], x + (kTileBytes >> 4) + i * kStepColumns, weight + i * kStepColumns,
                             step > 0 || i > 0);
        }
        wgmma_commit();
        wgmma_wait<1>();  // the products of the previous step are complete
        if (step > 0) release(before);
        before = stage;
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
      if (lane == 0) barrier_arrive(handover + 1 - consumer, 1);
      wgmma_wait<0>();
      fence_registers(sum[0]);
      fence_registers(sum[1]);
      release(before);

      // TMA stores a quarter of the tile at a time, 64 rows x 64 outputs, from one of two staging buffers.
#pragma unroll
      for (int quarter = 0; quarter < 4; ++quarter) {
        const int half = quarter / 2, panel = quarter % 2;
        uint8_t* buffer = buffers + quarter % 2 * kTileBytes;
        if (elected) await_tma_reads<1>();
        warpgroup_barrier(consumer);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float2 b = unpack<T>(biases[8 * panel + j]);
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int at = row_in_half + 8 * r;
            const float* v = sum[half] + 32 * panel + 4 * j + 2 * r;
            float low = epilogue<Activation>(v[0], b.x), high = epilogue<Activation>(v[1], b.y);
            if constexpr (Residual) {
              const int column = output + 64 * panel + 8 * j + t2;
              if (column < outputs && row + 64 * half + at < rows) {
                const float2 add = load_pair(residual + (row + 64 * half + at) * residual_row + column);
                low += add.x, high += add.y;
              }
            }
            *reinterpret_cast<uint32_t*>(buffer + at * 128 + ((j ^ (at & 7)) << 4) + 2 * t2) =
                tensor_core::pack<T>(low, high);
          }
        }
        fence_async_proxy();
        warpgroup_barrier(consumer);
        if (elected) store_box(&out_map, buffer, output + 64 * panel, row + 64 * half);
      }
    }
    if (elected) await_tma_stores();
  }
  cluster_barrier();  // no block exits while the other may still write to its shared memory
#endif
}

template <typename T, int Activation, bool Residual> const char* launch(const LinearArgs& args, cudaStream_t stream) {
  CUtensorMap x_map, weight_map, out_map;
  if (const char* why = matrix_map<T>(&x_map, args.x, args.rows, args.terms, args.x_row, TILE)) return why;
  if (const char* why =
          matrix_map<T>(&weight_map, args.weight, args.outputs, args.terms, args.weight_row, TILE / CLUSTER))
    return why;
  if (const char* why = matrix_map<T>(&out_map, args.out, args.rows, args.outputs, args.outputs, 64)) return why;
  if (const char* why = allow_shared<linear_hopper<T, Activation, Residual>>(SHARED_BYTES)) return why;
  const int64_t across = (args.outputs + TILE - 1) / TILE, down = (args.rows + CLUSTER * TILE - 1) / (CLUSTER * TILE);
  if (across * down > INT32_MAX / 2) return "unsupported: more than 2^30 tiles";
  const Tiles tiles{int(across), int(across * down), int((args.terms + STEP - 1) / STEP)};
  const int most = multiprocessors() / CLUSTER, clusters = tiles.pairs < most ? tiles.pairs : most;
  return launch_dependent(linear_hopper<T, Activation, Residual>, unsigned(clusters * CLUSTER), 128 * (1 + CONSUMERS),
                          SHARED_BYTES, stream, CLUSTER, x_map, weight_map, out_map, static_cast<const T*>(args.bias),
                          static_cast<const T*>(args.residual), args.residual_row, int(args.rows), int(args.outputs),
                          tiles);
}
}  // namespace

FUSESCOPE_KERNEL(const LinearArgs* args, void* stream) {
  return dispatch_product(*args, [&](auto zero, auto activation) {
    using T = decltype(zero);
    const auto on = static_cast<cudaStream_t>(stream);
    return args->residual ? launch<T, activation.value, true>(*args, on)
                          : launch<T, activation.value, false>(*args, on);
  });
}
