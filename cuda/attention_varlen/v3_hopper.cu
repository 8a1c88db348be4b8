// Hopper tiles: wgmma fed by TMA; one or two warpgroups of 64 query rows of a sequence share its KV tiles.
// archs: sm_90a
// expects: HGMMA UTMALDG
// takes: fp16 bf16, scale>0, tma
//
// The structure is that of attention's v3 with dense tiles: K and V of a step arrive by TMA in a ring of stages, the
// last warp to release a stage refills it, and O += P V of a step runs on beside the softmax of the next. Every
// warpgroup's steps begin at the first tile, so there is no schedule; under causal the first warpgroup stops earlier.
// What TMA brings beyond the sequence's end are the next sequence's rows: scores there are masked, and values set to
// zero before the last product.
#include "../common/dependent.cuh"
#include "../common/device.cuh"
#include "../common/exp2.cuh"
#include "../common/hopper.cuh"
#include "../common/mma.cuh"
#include "../common/warpgroup.cuh"
#include "sequences.cuh"

namespace {
using namespace hopper;

// Panels of 64 columns make up a row of head_dim; stages and resident blocks are what fits registers and shared memory.
template <int Panels, int WG> struct Shape {
  static constexpr int stages = Panels == 1 ? (WG == 1 ? 3 : 4) : Panels == 2 ? (WG == 1 ? 2 : 3) : 2;
  static constexpr int blocks_per_sm = Panels == 1 ? (WG == 2 ? 2 : 4) : Panels == 2 && WG == 1 ? 2 : 1;
  // Not at one panel, where ptxas 13.0 gives the fragments of Q and of P the same registers (see
  // cuda/attention/NOTES.md).
  static constexpr bool q_in_registers = Panels == 2;
  static constexpr int q_bytes = WG * Panels * kTileBytes;
  static constexpr int stage_bytes = 2 * Panels * kTileBytes;
  static constexpr int shared_bytes = 1024 + q_bytes + stages * stage_bytes + 256;
};

template <typename T, int Panels, int WG>
__global__ void __launch_bounds__(128 * WG, Shape<Panels, WG>::blocks_per_sm) varlen_hopper(
    const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
    const __grid_constant__ CUtensorMap v_map, const __grid_constant__ AttentionVarlenArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Shape<Panels, WG>;
  extern __shared__ uint8_t raw[];
  uint8_t* shared = raw + (1024 - shared_address(raw) % 1024) % 1024;
  uint8_t* stage_base = shared + S::q_bytes;
  uint64_t* full_k = reinterpret_cast<uint64_t*>(stage_base + S::stages * S::stage_bytes);
  uint64_t* full_v = full_k + S::stages;
  uint64_t* full_q = full_v + S::stages;
  uint32_t* released = reinterpret_cast<uint32_t*>(full_q + 1);

  // What all lanes of a warp share goes through a shuffle, so that the compiler knows it and keeps it in uniform
  // registers.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const int wg = warp / 4;
  wait_for_previous();  // the sequences' bounds may be what it left
  let_next_start();
  const varlen::Work w = varlen::work_of<64 * WG>(args, int(blockIdx.x / args.heads));
  if (w.row >= w.queries) return;
  const int head = int(blockIdx.x % args.heads), head_kv = head / (args.heads / args.heads_kv);

  // Steps that a warpgroup of this block works on: the tiles that the last of its rows sees.
  auto steps_of = [&](int group) {
    const int first = w.row + 64 * group, last = first + 63 < w.queries ? first + 63 : w.queries - 1;
    const int keys = first < w.queries ? varlen::keys_of_row(args, w, last) : 0;
    return keys > 0 ? (keys + 63) / 64 : 0;
  };
  const int end = __shfl_sync(0xffffffffu, steps_of(wg), 0), other = WG == 1 ? 0 : steps_of(1 - wg);
  const int steps = __shfl_sync(0xffffffffu, end > other ? end : other, 0);

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
  __syncthreads();

  auto load = [&](int step) {
    const int s = step % S::stages, row = w.k_first + step * 64;
    uint8_t* k = stage_base + s * S::stage_bytes;
    uint8_t* v = k + Panels * kTileBytes;
    barrier_expect(full_k + s, Panels * kTileBytes);
    for (int p = 0; p < Panels; ++p) load_tile(k + p * kTileBytes, &k_map, full_k + s, 64 * p, row, head_kv, 0);
    barrier_expect(full_v + s, Panels * kTileBytes);
    for (int p = 0; p < Panels; ++p) load_tile(v + p * kTileBytes, &v_map, full_v + s, 64 * p, row, head_kv, 0);
  };
  if (threadIdx.x == 0) {
    barrier_expect(full_q, S::q_bytes);
    for (int g = 0; g < WG; ++g)
      for (int p = 0; p < Panels; ++p)
        load_tile(shared + (g * Panels + p) * kTileBytes, &q_map, full_q, 64 * p, w.q_first + w.row + 64 * g, head, 0);
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
  const int row_in_tile = 16 * (warp % 4) + g, q_row = w.row + 64 * wg + row_in_tile;
  const int seen[2] = {varlen::keys_of_row(args, w, q_row), varlen::keys_of_row(args, w, q_row + 8)};
  const int all_see =
      __shfl_sync(0xffffffffu, varlen::keys_of_row(args, w, w.row + 64 * wg), 0);  // the first row sees fewest
  const float factor = args.scale * kLog2e;
  float o[Panels][32];
  float x[32];
  uint32_t weights[4][4];
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f};

  auto wait_for = [&](uint64_t* barrier, int step) {
    barrier_wait(barrier + step % S::stages, (step / S::stages) & 1);
  };
  auto release = [&](int step) {
    __syncwarp();
    if (lane == 0 && step + S::stages < steps && count_up(released + step % S::stages) == 4 * WG - 1) {
      released[step % S::stages] = 0;
      load(step + S::stages);
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
        wgmma_64x64x16<T, 1>(o[p], weights[i], tile_descriptor(v + p * kTileBytes) + i * kStepRows, i > 0 || step > 0);
    wgmma_commit();
  };
  auto finish_context = [&](int step) {
    wgmma_wait<0>();
#pragma unroll
    for (int p = 0; p < Panels; ++p) fence_registers(o[p]);
    release(step);
  };
  // Rows of V beyond the sequence's end become zeros. Each warpgroup does it for itself: the other one writes the same.
  auto clear_beyond = [&](int step) {
    const int valid = w.keys - step * 64;
    if (valid >= 64) return;
    uint8_t* v = stage_base + step % S::stages * S::stage_bytes + Panels * kTileBytes;
    wait_for(full_v, step);
    for (int p = 0; p < Panels; ++p)
      for (int at = valid * 128 + int(threadIdx.x % 128) * 16; at < kTileBytes; at += 128 * 16)
        *reinterpret_cast<uint4*>(v + p * kTileBytes + at) = uint4{};
    fence_async_proxy();  // before wgmma reads them
    warpgroup_barrier(wg);
  };
  // Scores in x to weights in x; shrink is what sums and context so far are to be multiplied by, true where that is
  // not 1.
  auto softmax = [&](int step, float (&shrink)[2]) {
    if (step * 64 + 64 > all_see) {
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (step * 64 + 8 * (i / 4) + t2 + (i & 1) >= seen[i & 2 ? 1 : 0]) x[i] = -INFINITY;
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

  if (end > 0) {
    float shrink[2];
    start_scores(0);
    wgmma_wait<0>();
    fence_registers(x);
    softmax(0, shrink);
    pack_weights();
    for (int step = 1; step < end; ++step) {
      start_scores(step);
      start_context(step - 1);
      wgmma_wait<1>();  // the scores are there; the context goes on beside the softmax
      fence_registers(x);
      const bool grows = softmax(step, shrink);
      finish_context(step - 1);
      if (grows) {
#pragma unroll
        for (int p = 0; p < Panels; ++p)
#pragma unroll
          for (int i = 0; i < 32; ++i) o[p][i] *= shrink[(i >> 1) & 1];
      }
      pack_weights();
    }
    clear_beyond(end - 1);
    start_context(end - 1);
    finish_context(end - 1);
  }
  for (int step = end; step < steps;
       ++step) {  // steps of the other warpgroup; a stage is released only after it was filled
    wait_for(full_k, step);
    release(step);
  }

  // The query tile's own shared memory carries the result to coalesced 16-byte stores.
  float inverse[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
    sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
    inverse[r] = sum[r] == 0.f ? 0.f : 1.f / sum[r];  // a row without a key is zeros
  }
  warpgroup_barrier(wg);
#pragma unroll
  for (int p = 0; p < Panels; ++p)
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = row_in_tile + 8 * r;
        const uint32_t two =
            end == 0 ? 0u
                     : tensor_core::pack<T>(o[p][4 * j + 2 * r] * inverse[r], o[p][4 * j + 2 * r + 1] * inverse[r]);
        *reinterpret_cast<uint32_t*>(q_own + p * kTileBytes + row * 128 + ((j ^ (row & 7)) << 4) + 2 * t2) = two;
      }
  warpgroup_barrier(wg);
  for (int i = threadIdx.x % 128; i < 64 * 8 * Panels; i += 128) {
    const int c = i % (8 * Panels), r = i / (8 * Panels), row = w.row + 64 * wg + r;
    if (row < w.queries && c * 8 < args.head_dim)
      *reinterpret_cast<uint4*>(static_cast<T*>(args.out) +
                                (int64_t(w.q_first + row) * args.heads + head) * args.head_dim + c * 8) =
          *reinterpret_cast<const uint4*>(q_own + (c / 8) * kTileBytes + r * 128 + (((c % 8) ^ (r & 7)) << 4));
  }
#endif
}

template <typename T, int Panels, int WG> const char* launch(const AttentionVarlenArgs& args, cudaStream_t stream) {
  using S = Shape<Panels, WG>;
  constexpr bool bf16 = std::is_same_v<T, __nv_bfloat16>;
  // Packed rows as one batch entry of the maps: (batch, head, row, column).
  auto map = [&](CUtensorMap* to, const void* data, int rows, int heads, const int64_t (&stride)[3]) {
    const int64_t sizes[4] = {1, heads, rows, args.head_dim}, strides[4] = {0, stride[1], stride[0], stride[2]};
    return make_map(to, bf16, data, sizes, strides);
  };
  CUtensorMap q_map, k_map, v_map;
  if (const char* why = map(&q_map, args.q, args.total_q, args.heads, args.q_stride)) return why;
  if (const char* why = map(&k_map, args.k, args.total_k, args.heads_kv, args.k_stride)) return why;
  if (const char* why = map(&v_map, args.v, args.total_k, args.heads_kv, args.v_stride)) return why;
  if (const char* why = allow_shared<varlen_hopper<T, Panels, WG>>(S::shared_bytes)) return why;
  const int64_t grid = varlen::slots(args, 64 * WG) * args.heads;
  if (grid > INT32_MAX) return "unsupported: more than 2^31 blocks";
  return launch_dependent(varlen_hopper<T, Panels, WG>, unsigned(grid), 128 * WG, S::shared_bytes, stream, 1, q_map,
                          k_map, v_map, args);
}

template <typename T, int Panels> const char* with_warpgroups(const AttentionVarlenArgs& args, cudaStream_t stream) {
  // One warpgroup a block while two would leave multiprocessors idle; two share their KV tiles once there is enough
  // work.
  return int64_t(args.heads) * args.total_q <= 2 * 64 * multiprocessors() ? launch<T, Panels, 1>(args, stream)
                                                                          : launch<T, Panels, 2>(args, stream);
}

template <typename T> const char* with_panels(const AttentionVarlenArgs& args, cudaStream_t stream) {
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

FUSESCOPE_KERNEL(const AttentionVarlenArgs* args, void* stream) {
  const AttentionVarlenArgs& a = *args;
  if (a.head_dim % 8 || a.head_dim < 32 || a.head_dim > 256)
    return "unsupported: head_dim (a multiple of 8 from 32 to 256 is)";
  if (!(a.scale > 0)) return "unsupported: a scale that is not positive (v2_blockwise takes it)";
  if (a.total_k == 0) return "unsupported: no keys at all (v2_blockwise takes that)";
  switch (a.dtype) {
    case FS_FLOAT16:
      return with_panels<__half>(a, static_cast<cudaStream_t>(stream));
    case FS_BFLOAT16:
      return with_panels<__nv_bfloat16>(a, static_cast<cudaStream_t>(stream));
  }
  return "unsupported: float32 (the tensor cores take float16 and bfloat16; use v1_rowwise)";
}
