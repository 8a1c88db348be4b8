// Hopper tiles: wgmma fed by TMA; warpgroups of 64 query rows share the KV tiles that any of them needs.
// archs: sm_90a
// expects: HGMMA UTMALDG
// takes: fp16 bf16, tma
// tiles: 1 per block, 4 blocks per SM, up to 2 tiles per SM
// tiles: 2 per block, 2 blocks per SM
//
// A block is WG warpgroups. It first merges their tile lists into one schedule in shared memory (a step is one KV tile,
// with a code per warpgroup; a warpgroup that does not need the tile skips it). K and V of a step arrive by TMA in a
// ring of stages. There is no producer warp: the last warp to release a stage refills it, so nobody waits for an empty
// stage. The product O += P V of a step runs on beside the softmax of the next.
#include "../common/dependent.cuh"
#include "../common/exp2.cuh"
#include "../common/hopper.cuh"
#include "../common/launch.cuh"
#include "../common/mma.cuh"
#include "attention.cuh"
#include "hopper_store.cuh"

namespace {
using namespace hopper;

constexpr int kDead = -2;
constexpr int kMaxSharedBytes = 232448;  // a block's most on sm_90

// Panels of 64 columns make up a row of head_dim; stages and resident blocks are what fits registers and shared memory.
template <int Panels, int WG, bool Bias> struct Shape {
  static constexpr int stages = Panels == 1 ? (WG == 1 ? 3 : 4) : Panels == 2 ? (WG == 1 ? 2 : 3) : 2;
  static constexpr int blocks_per_sm = Panels == 1 ? (WG == 2 ? 2 : Bias ? 3 : 4) : Panels == 2 && WG == 1 ? 2 : 1;
  // Q from registers spares half of the shared-memory reads of S = Q K^T. Only where ptxas 13.0 gets it right: at one
  // panel it gave the fragments of Q and of P the same registers, without a reload. Three and four panels have no
  // registers left for it.
  static constexpr bool q_in_registers = Panels == 2;
  static constexpr int q_bytes = WG * Panels * kTileBytes;
  static constexpr int stage_bytes = 2 * Panels * kTileBytes;
  static int shared_bytes(int kv_tiles) {
    return 1024 + q_bytes + stages * stage_bytes + 256 + 4 * kv_tiles * (WG + 1);
  }
};

template <typename T, int Panels, int WG, bool Bias>
__global__ void __launch_bounds__(128 * WG, Shape<Panels, WG, Bias>::blocks_per_sm) attention_hopper(
    const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
    const __grid_constant__ CUtensorMap v_map, const __grid_constant__ AttentionArgs args, int q_blocks) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Shape<Panels, WG, Bias>;
  extern __shared__ uint8_t raw[];
  uint8_t* shared = raw + (1024 - shared_address(raw) % 1024) % 1024;
  uint8_t* stage_base = shared + S::q_bytes;
  uint64_t* full_k = reinterpret_cast<uint64_t*>(stage_base + S::stages * S::stage_bytes);
  uint64_t* full_v = full_k + S::stages;
  uint64_t* full_q = full_v + S::stages;
  uint32_t* released = reinterpret_cast<uint32_t*>(full_q + 1);
  int* segment_end = reinterpret_cast<int*>(released + S::stages);
  const int kv_tiles = (args.seq_k + 63) / 64;
  int* order = reinterpret_cast<int*>(full_k) + 64;
  int* codes = order + kv_tiles;

  // What all lanes of a warp share goes through a shuffle, so that the compiler knows it and keeps it in uniform
  // registers.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const int wg = warp / 4;
  // Heavy rows first within a head: the first block holds the global tokens, and causal rows grow towards the end.
  const int turn = blockIdx.x % q_blocks, bh = blockIdx.x / q_blocks;
  const int q_block = turn == 0 ? 0 : q_blocks - turn;
  const int b = bh / args.heads, h = bh % args.heads, h_kv = h / (args.heads / args.heads_kv);
  const int q_tiles = (args.seq_q + 63) / 64;

  if (threadIdx.x == 0) {
    for (int s = 0; s < S::stages; ++s) {
      barrier_init(full_k + s, 1);
      barrier_init(full_v + s, 1);
      released[s] = 0;
    }
    barrier_init(full_q, 1);
    barrier_init_fence();
    prefetch_map(&q_map);
    prefetch_map(&k_map);
    prefetch_map(&v_map);
  }
  wait_for_previous();
  let_next_start();

  // The schedule: KV tiles that only the first warpgroup needs, then those of both, then those of the second alone, so
  // that each warpgroup's own steps are one unbroken range and its loop has no branch around a product.
  for (int i = threadIdx.x; i < WG * kv_tiles; i += 128 * WG) codes[i] = kDead;
  __syncthreads();
  if (const int q_tile = q_block * WG + wg; q_tile < q_tiles) {
    if (args.row_ptr == nullptr) {
      for (int i = threadIdx.x % 128; i < kv_tiles; i += 128) codes[wg * kv_tiles + i] = -1;
    } else {
      const int32_t* row = args.row_ptr + int64_t(b * args.mask_stride_b + h * args.mask_stride_h) * q_tiles + q_tile;
      const int last = row[1];
      for (int i = row[0] + int(threadIdx.x % 128); i < last; i += 128)
        codes[wg * kv_tiles + args.tile_index[i]] = args.tile_code[i];
    }
  }
  __syncthreads();
  if (warp == 0) {
    int count = 0;
#pragma unroll
    for (int segment = 0; segment < 2 * WG - 1; ++segment) {
      const int needed_by = WG == 1 ? 1 : segment == 0 ? 1 : segment == 1 ? 3 : 2;  // bit w: warpgroup w
      for (int base = 0; base < kv_tiles; base += 32) {
        const int t = base + lane;
        int live = 0;
        if (t < kv_tiles)
          for (int w = 0; w < WG; ++w) live |= (codes[w * kv_tiles + t] != kDead) << w;
        const uint32_t mask = __ballot_sync(0xffffffffu, live == needed_by);
        if (live == needed_by) order[count + __popc(mask & ((1u << lane) - 1))] = t;
        count += __popc(mask);
      }
      if (lane == 0) segment_end[segment] = count;
    }
  }
  __syncthreads();
  const int steps = __shfl_sync(0xffffffffu, segment_end[2 * WG - 2], 0);
  const int begin = __shfl_sync(0xffffffffu, WG == 1 || wg == 0 ? 0 : segment_end[0], 0);
  const int end = __shfl_sync(0xffffffffu, WG == 1 || wg == 1 ? steps : segment_end[1], 0);

  auto load = [&](int step) {
    const int s = step % S::stages, row = order[step] * 64;
    uint8_t* k = stage_base + s * S::stage_bytes;
    uint8_t* v = k + Panels * kTileBytes;
    barrier_expect(full_k + s, Panels * kTileBytes);
    for (int p = 0; p < Panels; ++p) load_tile(k + p * kTileBytes, &k_map, full_k + s, 64 * p, row, h_kv, b);
    barrier_expect(full_v + s, Panels * kTileBytes);
    for (int p = 0; p < Panels; ++p) load_tile(v + p * kTileBytes, &v_map, full_v + s, 64 * p, row, h_kv, b);
  };
  if (threadIdx.x == 0) {
    barrier_expect(full_q, S::q_bytes);
    for (int w = 0; w < WG; ++w)
      for (int p = 0; p < Panels; ++p)
        load_tile(shared + (w * Panels + p) * kTileBytes, &q_map, full_q, 64 * p, (q_block * WG + w) * 64, h, b);
    for (int step = 0; step < S::stages && step < steps; ++step) load(step);
  }

  uint8_t* q_own = shared + wg * Panels * kTileBytes;
  barrier_wait(full_q, 0);
  uint32_t q_regs[S::q_in_registers ? 4 * Panels : 1][4];
  if constexpr (S::q_in_registers) {
    const int r = 16 * (warp % 4) + lane % 16;
#pragma unroll
    for (int i = 0; i < 4 * Panels; ++i) {
      const int chunk = 2 * (i % 4) + lane / 16;
      tensor_core::ldmatrix_x4(q_regs[i],
                               shared_address(q_own + (i / 4) * kTileBytes + r * 128 + ((chunk ^ (r & 7)) << 4)));
    }
  }

  const int g = lane / 4, t2 = 2 * (lane % 4);
  const int row_in_tile = 16 * (warp % 4) + g;
  const int q_row = (q_block * WG + wg) * 64 + row_in_tile;
  const float factor = Bias ? 1.f : args.scale * kLog2e;  // of the scores as they stand in x, to powers of two
  float o[Panels][32];
  float x[32];
  uint32_t weights[4][4];
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f};

  auto wait_for = [&](uint64_t* barrier, int step) {
    barrier_wait(barrier + step % S::stages, (step / S::stages) & 1);
  };
  auto release = [&](int step) {
    __syncwarp();
    if (lane == 0 && step + S::stages < steps) {
      uint32_t before;
      asm volatile("atom.acq_rel.cta.shared::cta.add.u32 %0, [%1], 1;"
                   : "=r"(before)
                   : "r"(shared_address(released + step % S::stages))
                   : "memory");
      if (before == 4 * WG - 1) {
        released[step % S::stages] = 0;
        load(step + S::stages);
      }
    }
  };
  auto pass_by = [&](int from, int to) {  // steps of the other warpgroup; a stage is released only after it was filled
    for (int step = from; step < to; ++step) {
      wait_for(full_k, step);
      release(step);
    }
  };
  auto start_scores = [&](int step) {
    uint8_t* k = stage_base + step % S::stages * S::stage_bytes;
    wait_for(full_k, step);
    fence_registers(x);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4 * Panels; ++i) {
      const uint64_t kd = tile_descriptor(k + (i / 4) * kTileBytes) + (i % 4) * kStepColumns;
      if constexpr (S::q_in_registers)
        wgmma_64x64x16<T, 0>(x, q_regs[i], kd, i > 0);
      else
        wgmma_64x64x16<T>(x, tile_descriptor(q_own + (i / 4) * kTileBytes) + (i % 4) * kStepColumns, kd, i > 0);
    }
    wgmma_commit();
  };
  auto start_context = [&](int step) {
    uint8_t* v = stage_base + step % S::stages * S::stage_bytes + Panels * kTileBytes;
    wait_for(full_v, step);
#pragma unroll
    for (int p = 0; p < Panels; ++p) fence_registers(o[p]);
    wgmma_fence();
#pragma unroll
    for (int p = 0; p < Panels; ++p)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        wgmma_64x64x16<T, 1>(o[p], weights[i], tile_descriptor(v + p * kTileBytes) + i * kStepRows,
                             i > 0 || step > begin);
    wgmma_commit();
  };
  auto finish_context = [&](int step) {
    wgmma_wait<0>();
#pragma unroll
    for (int p = 0; p < Panels; ++p) fence_registers(o[p]);
    release(step);
  };
  // Scores in x to weights in x; shrink is what sums and context so far are to be multiplied by, true where that is
  // not 1.
  auto softmax = [&](int tile, int code, const uint64_t (&bits)[2], float (&shrink)[2]) {
    if constexpr (Bias) {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int row = q_row + (i & 2 ? 8 : 0), column = tile * 64 + 8 * (i / 4) + t2 + (i & 1);
        float extra = 0.f;
        if (args.bias && row < args.seq_q && column < args.seq_k) {
          const int64_t at = b * args.bias_stride[0] + h * args.bias_stride[1] + row * args.bias_stride[2] +
                             column * args.bias_stride[3];
          extra = args.bias_dtype == FS_FLOAT32 ? static_cast<const float*>(args.bias)[at]
                                                : to_float(static_cast<const T*>(args.bias)[at]);
        }
        x[i] = x[i] * (args.scale * kLog2e) + extra * kLog2e;
      }
    }
    if (code >= 0) {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const uint64_t word = bits[i & 2 ? 1 : 0];
        if (!((word >> (8 * (i / 4) + (i & 1))) & 1)) x[i] = -INFINITY;
      }
    } else if (tile * 64 + 64 > args.seq_k) {
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (tile * 64 + 8 * (i / 4) + t2 + (i & 1) >= args.seq_k) x[i] = -INFINITY;
    }
    // The maximum follows only when it grows by more than a factor of 2^8: sums and context may be that much larger
    // without harm to fp32 sums or 16-bit weights, and most steps then leave the context alone.
    bool grows = false;
    float shift[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = x[2 * r];
#pragma unroll
      for (int j = 0; j < 8; ++j) top = fmaxf(top, fmaxf(x[4 * j + 2 * r], x[4 * j + 2 * r + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      const bool follow = top * factor > maximum[r] * factor + 8.f || maximum[r] == -INFINITY;
      const float next = follow ? top : maximum[r];
      shift[r] =
          next == -INFINITY ? 0.f : next * factor;  // a row with no live key so far: every weight is exp2(-inf) = 0
      shrink[r] = follow ? exp2_approx(maximum[r] * factor - shift[r]) : 1.f;
      grows |= follow;
      maximum[r] = next;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float part[2] = {0.f, 0.f};
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const float weight = exp2_approx(x[4 * j + 2 * r + c] * factor - shift[r]);
          x[4 * j + 2 * r + c] = weight;
          part[c] += weight;
        }
      }
      sum[r] = sum[r] * shrink[r] + (part[0] + part[1]);
    }
    return __any_sync(0xffffffffu, grows);
  };
  auto pack_weights = [&]() {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      weights[i][0] = tensor_core::pack<T>(x[8 * i], x[8 * i + 1]);
      weights[i][1] = tensor_core::pack<T>(x[8 * i + 2], x[8 * i + 3]);
      weights[i][2] = tensor_core::pack<T>(x[8 * i + 4], x[8 * i + 5]);
      weights[i][3] = tensor_core::pack<T>(x[8 * i + 6], x[8 * i + 7]);
    }
  };
  auto row_bits = [&](int code, uint64_t (&bits)[2]) {
    if (code < 0) return;
    bits[0] = args.bitmaps[int64_t(code) * 64 + row_in_tile] >> t2;
    bits[1] = args.bitmaps[int64_t(code) * 64 + row_in_tile + 8] >> t2;
  };

  pass_by(0, begin);
  if (begin < end) {
    float shrink[2];
    {
      const int tile = order[begin], code = codes[wg * kv_tiles + tile];
      uint64_t bits[2];
      row_bits(code, bits);
      start_scores(begin);
      wgmma_wait<0>();
      fence_registers(x);
      softmax(tile, code, bits, shrink);
      pack_weights();
    }
    for (int step = begin + 1; step < end; ++step) {
      const int tile = order[step], code = codes[wg * kv_tiles + tile];
      uint64_t bits[2];
      row_bits(code, bits);
      start_scores(step);
      start_context(step - 1);
      wgmma_wait<1>();  // the scores are there; the context goes on beside the softmax
      fence_registers(x);
      const bool grows = softmax(tile, code, bits, shrink);
      finish_context(step - 1);
      if (grows) {
#pragma unroll
        for (int p = 0; p < Panels; ++p)
#pragma unroll
          for (int i = 0; i < 32; ++i) o[p][i] *= shrink[(i >> 1) & 1];
      }
      pack_weights();
    }
    start_context(end - 1);
    finish_context(end - 1);
  }
  pass_by(end, steps);

  float inverse[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
    sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
    inverse[r] = sum[r] > 0.f ? 1.f / sum[r] : 0.f;
  }
  const int q_tile = q_block * WG + wg;
  T* out =
      static_cast<T*>(args.out) + b * args.out_stride[0] + h * args.out_stride[1] + q_tile * 64 * args.out_stride[2];
  store_tile<T, Panels>(q_own, wg, out, args.out_stride[2], args.seq_q - q_tile * 64, args.head_dim,
                        [&](int i, int r) { return begin == end ? 0.f : o[i / 32][i % 32] * inverse[r]; });
#endif
}

template <typename T, int Panels, int WG, bool Bias>
const char* launch(const AttentionArgs& args, cudaStream_t stream) {
  const int64_t q_sizes[4] = {args.batch, args.heads, args.seq_q, args.head_dim};
  const int64_t kv_sizes[4] = {args.batch, args.heads_kv, args.seq_k, args.head_dim};
  CUtensorMap q_map, k_map, v_map;
  constexpr bool bf16 = std::is_same_v<T, __nv_bfloat16>;
  if (const char* why = make_map(&q_map, bf16, args.q, q_sizes, args.q_stride)) return why;
  if (const char* why = make_map(&k_map, bf16, args.k, kv_sizes, args.k_stride)) return why;
  if (const char* why = make_map(&v_map, bf16, args.v, kv_sizes, args.v_stride)) return why;
  constexpr auto kernel = attention_hopper<T, Panels, WG, Bias>;
  const int bytes = Shape<Panels, WG, Bias>::shared_bytes((args.seq_k + 63) / 64);
  if (bytes > kMaxSharedBytes) return "unsupported: too many keys for the schedule in shared memory";
  if (const char* why = allow_shared_up_to<kernel>(bytes)) return why;
  const int q_tiles = (args.seq_q + 63) / 64, q_blocks = (q_tiles + WG - 1) / WG;
  const int64_t grid = int64_t(q_blocks) * args.batch * args.heads;
  if (grid > INT32_MAX) return "unsupported: more than 2^31 blocks";
  return launch_dependent(kernel, unsigned(grid), 128 * WG, bytes, stream, 1, q_map, k_map, v_map, args, q_blocks);
}

template <typename T, int Panels> const char* with_warpgroups(const AttentionArgs& args, cudaStream_t stream) {
  // A scale that is not positive turns the order of the scores round, so the maximum has to be taken of scaled ones, as
  // with a bias; a bias needs the registers that a second resident block would.
  if (args.bias || !(args.scale > 0)) return launch<T, Panels, 1, true>(args, stream);
  // One warpgroup a block while two would leave multiprocessors idle; two share their KV tiles once there is enough
  // work.
  const int64_t tiles = int64_t(args.batch) * args.heads * ((args.seq_q + 63) / 64);
  return tiles <= 2 * 132 ? launch<T, Panels, 1, false>(args, stream) : launch<T, Panels, 2, false>(args, stream);
}

template <typename T> const char* with_panels(const AttentionArgs& args, cudaStream_t stream) {
  switch ((args.head_dim + 63) / 64) {
    case 1:
      return with_warpgroups<T, 1>(args, stream);
    case 2:
      return with_warpgroups<T, 2>(args, stream);
    case 3:
      return with_warpgroups<T, 3>(args, stream);
    case 4:
      return with_warpgroups<T, 4>(args, stream);
  }
  return "unsupported: head_dim above 256";
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionArgs* args, void* stream) {
  switch (args->dtype) {
    case FS_FLOAT16:
      return with_panels<__half>(*args, static_cast<cudaStream_t>(stream));
    case FS_BFLOAT16:
      return with_panels<__nv_bfloat16>(*args, static_cast<cudaStream_t>(stream));
  }
  return "unsupported: float32 (the tensor cores take float16 and bfloat16; use v1_rowwise)";
}
