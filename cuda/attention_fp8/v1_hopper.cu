// wgmma on e4m3: persistent blocks of three warpgroups of 64 query rows and two producer warps.
// archs: sm_90a
// expects: QGMMA UBLKCP
//
// A warpgroup takes 64 keys per step: P V of a step runs on the tensor cores while the exponentials of the next are
// computed, and the warpgroups, each at its own pace, fill the units that the others leave idle. The weights are
// rounded to e4m3 in the registers that held the scores and are the left operand of P V as they are (tiles.h); the sums
// of the rows are columns of that product. Queries, keys and values come as whole tiles by bulk copies, across the
// bounds of a block's items.
#include "../common/device.cuh"
#include "../common/launch.cuh"
#include "../common/roles.cuh"
#include "consumer.cuh"
#include "quantise.cuh"

namespace {
using namespace fp8;

template <typename T, typename S>
__global__ void __launch_bounds__(S::threads, 1) attention_e4m3(const __grid_constant__ AttentionFp8Args args,
                                                                const Items items) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t raw[];
  const Memory<S> memory(raw);
  const int warp = hopper::uniform(threadIdx.x / 32), wg = warp / 4;
  memory.init();
  __syncthreads();
  wait_for_previous();
  let_next_start();
  if (wg == S::WG) {
    hopper::fewer_registers<S::producer_registers>();
    if (warp % 4 == 0) produce_keys<S>(args, items, memory);
    if (warp % 4 == 1) produce_queries<S>(args, items, memory);
  } else {
    hopper::more_registers<S::consumer_registers>();
    consume<T, S>(args, memory, wg);
  }
#endif
}

template <typename T, int D> const char* attend(const AttentionFp8Args& args, cudaStream_t stream) {
  using S = Shape<D>;
  constexpr auto kernel = attention_e4m3<T, S>;
  if (const char* why = allow_shared<kernel>(S::bytes)) return why;
  const int heads = args.batch * args.heads, q_tiles = (args.seq_q + FP8_TILE - 1) / FP8_TILE;
  const int q_blocks = (q_tiles + S::WG - 1) / S::WG, group = args.heads / args.heads_kv;
  const int64_t count = int64_t(heads) * q_blocks;
  if (count > INT32_MAX) return "unsupported: more than 2^31 query blocks";
  constexpr int64_t kCached = int64_t(16) << 20;  // bytes of keys and values that stay in the L2 cache
  int64_t together = kCached / (2 * int64_t(args.seq_k) * D) * group;
  together = together < group ? group : together < heads ? together : heads;
  const int grid = count < multiprocessors() ? int(count) : multiprocessors();
  const Items items{int(count), q_blocks, heads, int(together), next_tag()};
  return launch_dependent(kernel, unsigned(grid), S::threads, S::bytes, stream, 1, args, items);
}

template <typename T, int D> const char* run(const AttentionFp8Args& args, cudaStream_t stream) {
  return args.phase == FP8_QUANTISE ? launch_quantise<T, D>(args, stream) : attend<T, D>(args, stream);
}
template <typename T> const char* with_columns(const AttentionFp8Args& args, cudaStream_t stream) {
  return args.head_dim == 64 ? run<T, 64>(args, stream) : run<T, 128>(args, stream);
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionFp8Args* args, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  return args->dtype == FS_FLOAT16 ? with_columns<__half>(*args, on) : with_columns<__nv_bfloat16>(*args, on);
}
