// A product of few rows: each block has all of its TMA loads in flight at once, those of the weight while the
// previous kernel still runs.
// archs: sm_90a
// expects: HGMMA UTMALDG
// emulated: no, the blocks of a cluster run at the same time and write to each other
//
// At 128 rows a product is latency-bound: data that the memory could deliver in 1 us arrives after 5 us if it is
// requested only when the previous kernel has ended. A block computes 64 rows x 64 outputs over a slice of the terms;
// the blocks of a cluster split the terms of one tile (split-K) and reduce it through distributed shared memory, each a
// part of its rows.
#include "../common/dependent.cuh"
#include "hopper_product.cuh"

namespace {
constexpr int THREADS = 128, STEP_BYTES = 2 * kTileBytes, MOST_STEPS = 12, MOST_SPLIT = 8;
constexpr int SUMS_BYTES = 64 * 64 * 4, BARRIER_BYTES = 8 * (MOST_STEPS + 1);

// Index of a sum in shared memory, swizzled so that neighbouring rows use different banks.
__device__ __forceinline__ int swizzled(int row, int column) {
  return row * 64 + ((column / 4 ^ row % 8) * 4) + column % 4;
}

// Stores two floats to another block's shared memory; its barrier counts the bytes.
__device__ __forceinline__ void store_remote(uint32_t to, uint32_t barrier, float2 v) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to), "f"(v.x),
               "f"(v.y), "r"(barrier)
               : "memory");
}

// Grid: `split` consecutive blocks per tile, tiles ordered down the rows first. all_steps: of 64 terms each.
template <typename T, int Activation>
__global__ void __launch_bounds__(THREADS) linear_few_rows(const __grid_constant__ CUtensorMap x_map,
                                                           const __grid_constant__ CUtensorMap weight_map,
                                                           const T* bias, const T* residual, int64_t residual_row,
                                                           T* out, int rows, int outputs, int down, int all_steps,
                                                           int split, bool settled) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024)
      uint8_t shared[];  // all of it dynamic: two blocks of six steps just fit a multiprocessor
  if (shared_address(shared) % 1024) __trap();
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const int part = blockIdx.x % split, tile = blockIdx.x / split, row = tile % down * 64, output = tile / down * 64;
  const int steps_each = (all_steps + split - 1) / split, begin = part * steps_each;
  const int steps = __shfl_sync(
      0xffffffffu, all_steps - begin < steps_each ? (all_steps > begin ? all_steps - begin : 0) : steps_each, 0);
  // This block reduces rows part, part + split, ... of the tile; `sums` holds those of block 0, then of block 1, ...
  float* sums = reinterpret_cast<float*>(shared + steps_each * STEP_BYTES);
  uint64_t* full = reinterpret_cast<uint64_t*>(shared + steps_each * STEP_BYTES + SUMS_BYTES);
  uint64_t* received = full + MOST_STEPS;
  const int rows_each = 64 / split;
  if (!settled) wait_for_previous();
  if (threadIdx.x == 0) {
    for (int s = 0; s < steps; ++s) barrier_init(full + s, 1);
    barrier_init(received, 1);
    barrier_init_fence();
    for (int s = 0; s < steps; ++s) {
      barrier_expect(full + s, STEP_BYTES);
      load_box(shared + s * STEP_BYTES + kTileBytes, &weight_map, full + s, (begin + s) * 64, output);
    }
    if (split > 1) barrier_expect(received, SUMS_BYTES);
  }
  // A thread reduces eight outputs at a time, always of the same columns.
  const int column = output + threadIdx.x % 8 * 8;
  float b[8] = {};
  if (bias && column < outputs) {
#pragma unroll
    for (int e = 0; e < 8; e += 2) {
      const float2 two = load_pair(bias + column + e);
      b[e] = two.x, b[e + 1] = two.y;
    }
  }
  if (split > 1) cluster_barrier();  // all blocks' barriers are initialised before anything is sent
  wait_for_previous();
  let_next_start();
  if (threadIdx.x == 0)
    for (int s = 0; s < steps; ++s) load_box(shared + s * STEP_BYTES, &x_map, full + s, (begin + s) * 64, row);
  __syncthreads();

  float sum[32] = {};
  for (int s = 0; s < steps; ++s) {
    barrier_wait(full + s, 0);
    const uint64_t x = tile_descriptor(shared + s * STEP_BYTES),
                   weight = tile_descriptor(shared + s * STEP_BYTES + kTileBytes);
    fence_registers(sum);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) wgmma_64x64x16<T>(sum, x + i * kStepColumns, weight + i * kStepColumns, s > 0 || i > 0);
    wgmma_commit();
  }
  wgmma_wait<0>();
  fence_registers(sum);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int in_tile = 16 * warp + lane / 4 + 8 * r, owner = in_tile % split;
    const int at = part * rows_each + in_tile / split;
    const uint32_t barrier = cluster_address(received, owner);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float* to = sums + swizzled(at, 8 * j + 2 * (lane % 4));
      const float2 two = {sum[4 * j + 2 * r], sum[4 * j + 2 * r + 1]};
      if (split == 1)
        *reinterpret_cast<float2*>(to) = two;
      else
        store_remote(cluster_address(to, owner), barrier, two);
    }
  }
  if (split > 1)
    barrier_wait(received, 0);
  else
    __syncthreads();

  for (int i = threadIdx.x / 8; i < rows_each; i += THREADS / 8) {
    const int at = row + i * split + part;
    float v[8] = {};
    for (int other = 0; other < split; ++other) {
      const int from = other * rows_each + i, first = threadIdx.x % 8 * 8;
      const float4 low = *reinterpret_cast<const float4*>(sums + swizzled(from, first));
      const float4 high = *reinterpret_cast<const float4*>(sums + swizzled(from, first + 4));
      v[0] += low.x, v[1] += low.y, v[2] += low.z, v[3] += low.w, v[4] += high.x, v[5] += high.y, v[6] += high.z,
          v[7] += high.w;
    }
    if (at >= rows || column >= outputs) continue;
    uint4 packed;
    uint32_t* two = reinterpret_cast<uint32_t*>(&packed);
#pragma unroll
    for (int e = 0; e < 8; e += 2) {
      const float2 add = residual ? load_pair(residual + at * residual_row + column + e) : float2{0.0f, 0.0f};
      two[e / 2] = tensor_core::pack<T>(epilogue<Activation>(v[e], b[e]) + add.x,
                                        epilogue<Activation>(v[e + 1], b[e + 1]) + add.y);
    }
    *reinterpret_cast<uint4*>(out + int64_t(at) * outputs + column) = packed;
  }
#endif
}

template <typename T, int Activation> const char* launch(const LinearArgs& args, cudaStream_t stream) {
  const int64_t down = (args.rows + 63) / 64, across = (args.outputs + 63) / 64, steps = (args.terms + 63) / 64;
  int split = 1;  // doubled until a block's loads fit and every multiprocessor has a block
  while (split < MOST_SPLIT && ((steps + split - 1) / split > MOST_STEPS ||
                                (down * across * split * 2 < multiprocessors() && steps / split >= 6)))
    split *= 2;
  const int64_t steps_each = (steps + split - 1) / split, blocks = down * across * split;
  if (steps_each > MOST_STEPS) return "unsupported: more terms than eight blocks hold (use v3_hopper)";
  if (blocks > INT32_MAX) return "unsupported: more than 2^31 blocks";
  CUtensorMap x_map, weight_map;
  if (const char* why = matrix_map<T>(&x_map, args.x, args.rows, args.terms, args.x_row, 64)) return why;
  if (const char* why = matrix_map<T>(&weight_map, args.weight, args.outputs, args.terms, args.weight_row, 64))
    return why;
  const int bytes = int(steps_each) * STEP_BYTES + SUMS_BYTES + BARRIER_BYTES;
  if (const char* why =
          allow_shared<linear_few_rows<T, Activation>>(MOST_STEPS * STEP_BYTES + SUMS_BYTES + BARRIER_BYTES))
    return why;
  return launch_dependent(linear_few_rows<T, Activation>, unsigned(blocks), THREADS, bytes, stream, unsigned(split),
                          x_map, weight_map, static_cast<const T*>(args.bias), static_cast<const T*>(args.residual),
                          args.residual_row, static_cast<T*>(args.out), int(args.rows), int(args.outputs), int(down),
                          int(steps), split, args.settled != 0);
}
}  // namespace

FUSESCOPE_KERNEL(const LinearArgs* args, void* stream) {
  return dispatch_product(*args, [&](auto zero, auto activation) {
    return launch<decltype(zero), activation.value>(*args, static_cast<cudaStream_t>(stream));
  });
}
