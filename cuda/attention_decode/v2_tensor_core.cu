// Tensor cores with the query heads of a KV head as rows, so that K and V are read once; each warp streams its own keys
// by cp.async.
// archs: sm_80 sm_86 sm_89 sm_90a
// expects: HMMA
// takes: fp16 bf16
//
// Decoding is bound by bytes in flight. A warp owns 16 of the 64 keys of a tile and a ring buffer of units (K of 16
// keys, then their V), which it fills itself: the loop has no block barrier and runs on across items. As the warps see
// different keys, each keeps its own maximum, sum and context; they merge in shared memory at the end of an item.
#include <type_traits>

#include "../common/device.cuh"
#include "../common/eight.cuh"
#include "merge.cuh"
#include "units.cuh"

namespace {
using namespace tensor_core;
using namespace decode;
constexpr int kRows = 16;  // query heads of an item

// Units of a warp's ring, and blocks a multiprocessor: some 128 KB in flight on one of 228 KB, a block within the 99 KB
// of sm_86.
template <int Width> struct Shape {
  static constexpr int units = Width <= 32    ? 8
                               : Width <= 64  ? 5
                               : Width <= 96  ? 6
                               : Width <= 128 ? 5
                               : Width <= 192 ? 3
                                              : 2;
  static constexpr int blocks_per_sm = Width <= 64 ? 4 : 2;
  static constexpr int unit_bytes = kUnitKeys * Width * 2;
  static constexpr int bytes = kWarps * units * unit_bytes + int(sizeof(MergeStorage<Width>));
};

// Two neighbouring columns of a query row as mma takes them; zeros outside.
template <typename T> __device__ __forceinline__ uint32_t query_pair(const T* row, int64_t column_stride, int column,
                                                                     bool inside, bool pairs) {
  if (!inside) return 0;
  if (pairs) return *reinterpret_cast<const uint32_t*>(row + column);
  alignas(4) T two[2] = {row[column * column_stride], row[(column + 1) * column_stride]};
  return *reinterpret_cast<uint32_t*>(two);
}

enum { kKeyVectors = 1, kValueVectors = 2, kQueryPairs = 4 };

template <typename T, int Width>
__global__ void __launch_bounds__(kThreads, Shape<Width>::blocks_per_sm) decode_tensor_core(
    const __grid_constant__ AttentionDecodeArgs a, int how) {
  using S = Shape<Width>;
  constexpr int Steps = Width / 16, Units = S::units;
  extern __shared__ __align__(128) char shared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quad = lane / 4, pair = lane % 4;
  char* const ring = shared + warp * Units * S::unit_bytes;
  MergeStorage<Width>& storage = *reinterpret_cast<MergeStorage<Width>*>(shared + kWarps * Units * S::unit_bytes);
  const int items = items_of(a, kRows), rows = rows_of(a, kRows), blocks = (group_of(a) + kRows - 1) / kRows;
  const Workspace workspace(a.workspace, gridDim.x, rows, a.head_dim);

  wait_for_previous();
  let_next_start();
  clear_empty<T>(a);
  const BlockRange range = block_range(a, items);
  if (range.begin >= range.end) {
    if (threadIdx.x == 0) record_unfinished(a, workspace, range, Cursor{});
    return;
  }
  const int steps = int(range.end - range.begin);
  Cursor work = locate(a, items, range.begin), ahead = work;

  const T *ahead_k = nullptr, *ahead_v = nullptr;  // this warp's first key and value of the item being loaded
  auto point = [&]() {
    const int head_kv = ahead.item / blocks;
    ahead_k = static_cast<const T*>(a.k) + ahead.b * a.k_stride[0] + head_kv * a.k_stride[1] +
              warp * kUnitKeys * a.k_stride[2];
    ahead_v = static_cast<const T*>(a.v) + ahead.b * a.v_stride[0] + head_kv * a.v_stride[1] +
              warp * kUnitKeys * a.v_stride[2];
  };
  point();
  int to_load = steps,
      fill_at = 0;                // tiles whose values are still to be loaded; the ring's stage for the next unit
  auto fill = [&](auto values) {  // starts loading the next unit in order: keys and values of a tile in turn
    if (to_load > 0) {
      char* const unit = ring + fill_at * S::unit_bytes;
      const int row = ahead.tile * kTile, live = ahead.length - row - warp * kUnitKeys;
      if constexpr (decltype(values)::value) {
        load_unit<T, Width>(unit, ahead_v + row * a.v_stride[2], a.v_stride[2], a.v_stride[3], live, a.head_dim,
                            how & kValueVectors);
        --to_load;
        ahead.advance(a, items);
        if (ahead.tile == 0 && to_load > 0) point();
      } else {
        load_unit<T, Width>(unit, ahead_k + row * a.k_stride[2], a.k_stride[2], a.k_stride[3], live, a.head_dim,
                            how & kKeyVectors);
      }
      fill_at = fill_at + 1 == Units ? 0 : fill_at + 1;
    }
    async_copy::commit();
  };
#pragma unroll 1
  for (int i = 0; i < Units - 1; ++i) {
    if (i % 2)
      fill(std::true_type{});
    else
      fill(std::false_type{});
  }

  uint32_t query[Steps][4];
  float maximum[2], sum[2], out[Width / 8][4];
  const float scale = a.scale * kLog2e;
  int read_at = 0;
  // Waits for the next unit in order and refills the stage of the one before, which all lanes have read, with the unit
  // Units - 1 further on: values for values where that is an even number.
  auto next_unit = [&](auto values) {
    async_copy::wait<Units - 2>();
    __syncwarp();
    fill(std::bool_constant<decltype(values)::value == (Units % 2 == 1)>{});
    char* unit = ring + read_at * S::unit_bytes;
    read_at = read_at + 1 == Units ? 0 : read_at + 1;
    return unit;
  };

  bool begins = false;
  for (int step = 0; step < steps; ++step) {
    if (step == 0 || work.tile == 0) {  // another item
      begins = work.tile == 0;
      const int row = work.item % blocks * kRows + quad, head = work.item / blocks * group_of(a) + row;
      const T* from = static_cast<const T*>(a.q) + work.b * a.q_stride[0] + head * a.q_stride[1];
      const bool low = row < group_of(a), high = row + 8 < group_of(a), pairs = how & kQueryPairs;
#pragma unroll
      for (int s = 0; s < Steps; ++s)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int column = 16 * s + 2 * pair + 8 * (e / 2);
          query[s][e] = query_pair(from + (e % 2 ? 8 * a.q_stride[1] : 0), a.q_stride[2], column,
                                   (e % 2 ? high : low) && column < a.head_dim, pairs);
        }
#pragma unroll
      for (int h = 0; h < 2; ++h) maximum[h] = -INFINITY, sum[h] = 0.f;
#pragma unroll
      for (int n = 0; n < Width / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) out[n][e] = 0.f;
    }

    // Scores: 16 rows x 16 keys; even and odd steps apart, so that products wait less for one another.
    char* const keys = next_unit(std::false_type{});
    float part[2][2][4] = {};
#pragma unroll
    for (int s = 0; s < Steps; ++s) {
      uint32_t key[4];
      ldmatrix_x4(key, shared_address(keys + place<Width>(lane % 8 + 8 * (lane / 16), 2 * s + (lane / 8) % 2)));
      mma_m16n8k16<T>(part[s % 2][0], query[s], {key[0], key[1]});
      mma_m16n8k16<T>(part[s % 2][1], query[s], {key[2], key[3]});
    }
    const int live = work.length - work.tile * kTile - warp * kUnitKeys;
    float score[2][4];
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        score[n][e] = (part[0][n][e] + part[1][n][e]) * scale;
        if (8 * n + 2 * pair + (e & 1) >= live) score[n][e] = -INFINITY;
      }

    // Online softmax over the four lanes of a row. The maximum is raised only when it grows by more than 2^8: sums and
    // context stay in range, and most steps need no rescaling.
    float shrink[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = fmaxf(fmaxf(score[0][2 * h], score[0][2 * h + 1]), fmaxf(score[1][2 * h], score[1][2 * h + 1]));
      top = fmaxf(top, __shfl_xor_sync(kAll, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAll, top, 2));
      const bool raise = top > maximum[h] + 8.f || maximum[h] == -INFINITY;
      const float next = raise ? top : maximum[h],
                  base = next == -INFINITY ? 0.f : next;  // -inf minus -inf would be NaN
      shrink[h] = raise ? exp2_approx(maximum[h] - base) : 1.f;
      maximum[h] = next;
      float total = 0.f;
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) total += score[n][2 * h + e] = exp2_approx(score[n][2 * h + e] - base);
      sum[h] = sum[h] * shrink[h] + total;
    }
    if (shrink[0] != 1.f || shrink[1] != 1.f) {
#pragma unroll
      for (int n = 0; n < Width / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) out[n][e] *= shrink[e / 2];
    }

    char* const values = next_unit(std::true_type{});
    const uint32_t weights[4] = {pack<T>(score[0][0], score[0][1]), pack<T>(score[0][2], score[0][3]),
                                 pack<T>(score[1][0], score[1][1]), pack<T>(score[1][2], score[1][3])};
#pragma unroll
    for (int n = 0; n < Width / 16; ++n) {
      uint32_t value[4];
      ldmatrix_x4_trans(value, shared_address(values + place<Width>(lane % 16, 2 * n + lane / 16)));
      mma_m16n8k16<T>(out[2 * n], weights, {value[0], value[1]});
      mma_m16n8k16<T>(out[2 * n + 1], weights, {value[2], value[3]});
    }

    const bool ends = work.tile + 1 == work.tiles;
    if (ends || step + 1 == steps) {
      const Segment segment{begins, ends, work.b, work.item};
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (8 * h >= rows) break;
        sum[h] += __shfl_xor_sync(kAll, sum[h], 1);
        sum[h] += __shfl_xor_sync(kAll, sum[h], 2);
        __syncthreads();  // the previous content has been read
#pragma unroll
        for (int n = 0; n < Width / 8; ++n)
          *reinterpret_cast<float2*>(&storage.context[warp][quad][8 * n + 2 * pair]) =
              make_float2(out[n][2 * h], out[n][2 * h + 1]);
        if (pair == 0) {
          storage.maximum[warp][quad] = maximum[h];
          storage.sum[warp][quad] = sum[h];
        }
        __syncthreads();
        merge_warps<T, Width>(a, storage, workspace, segment, kRows, 8 * h, rows - 8 * h < 8 ? rows - 8 * h : 8);
      }
      if (step + 1 == steps && threadIdx.x == 0) record_unfinished(a, workspace, range, work);
    }
    work.advance(a, items);
  }
}

template <typename T, int Width> const char* launch(const AttentionDecodeArgs& a, cudaStream_t stream) {
  using S = Shape<Width>;
  const int blocks = multiprocessors() * S::blocks_per_sm, rows = rows_of(a, kRows);
  if (!a.workspace) {
    *a.workspace_floats = Workspace::floats(blocks, rows, a.head_dim);
    return nullptr;
  }
  if (const char* why = allow_shared<decode_tensor_core<T, Width>>(S::bytes)) return why;
  const int how =
      (has_vectors(a.k, a.k_stride, 2) ? kKeyVectors : 0) | (has_vectors(a.v, a.v_stride, 2) ? kValueVectors : 0) |
      (aligned(a.q, 4) && a.q_stride[2] == 1 && a.q_stride[0] % 2 == 0 && a.q_stride[1] % 2 == 0 ? kQueryPairs : 0);
  if (const char* why = launch_dependent(decode_tensor_core<T, Width>, blocks, kThreads, S::bytes, stream, 1, a, how))
    return why;
  return launch_dependent(merge_partials<T>, blocks * rows, kThreads, 0, stream, 1, a, blocks, kRows);
}

}  // namespace

FUSESCOPE_KERNEL(const AttentionDecodeArgs* args, void* stream) {
  if (const char* why = refuse_e4m3(*args)) return why;
  const AttentionDecodeArgs& a = *args;
  return dispatch_16bit(
      a.dtype,
      "unsupported: float32 on the tensor-core path, which multiplies float16 and bfloat16 (v1_warp_keys takes "
      "float32)",
      [&](auto zero) {
        return with_width<32, 64, 96, 128, 192, 256>(a.head_dim, [&](auto width) {
          return launch<decltype(zero), width>(a, static_cast<cudaStream_t>(stream));
        });
      });
}
