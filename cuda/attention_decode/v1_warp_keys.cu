// Each block gets an equal range of the live keys; 8, 16 or 32 lanes per key, four query heads at once, sums in fp32
// registers.
//
// Any dtype and architecture. Four query heads that read the same KV head use each key and value while it is in
// registers; groups of more heads read the cache once for every four. No shared memory in the loop: keys and values
// are loaded straight into registers, four of each per lane in flight. Lane groups keep a maximum, sum and
// context of their own and merge at the end of an item.
#include <type_traits>

#include "../attention/lane_groups.cuh"
#include "../common/device.cuh"
#include "../common/eight.cuh"
#include "merge.cuh"

namespace {
using namespace decode;
constexpr int kRows = 4, kFlight = 4;  // query heads of an item, keys in flight per lane group
template <typename T> constexpr int kBlocksPerSm =
    sizeof(T) == 4 ? 2 : 3;  // bounded by the registers of the keys in flight

template <typename T, int Lanes>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm<T>) decode_warp_keys(const AttentionDecodeArgs a,
                                                                              int vectors) {
  constexpr int Width = Lanes * 8, Groups = 32 / Lanes;
  __shared__ MergeStorage<Width> storage;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / Lanes, column = lane % Lanes * 8;
  const bool own = column < a.head_dim;
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
  Cursor work = locate(a, items, range.begin);

  float query[kRows][8], context[kRows][8], maximum[kRows], sum[kRows];
  const float scale = a.scale * kLog2e;
  bool begins = false;
  const T *k = nullptr, *v = nullptr;
  for (int step = 0; step < steps; ++step) {
    if (step == 0 || work.tile == 0) {  // another item
      begins = work.tile == 0;
      const int row = work.item % blocks * kRows, head_kv = work.item / blocks;
      k = static_cast<const T*>(a.k) + work.b * a.k_stride[0] + head_kv * a.k_stride[1] + column * a.k_stride[3];
      v = static_cast<const T*>(a.v) + work.b * a.v_stride[0] + head_kv * a.v_stride[1] + column * a.v_stride[3];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const T* q = static_cast<const T*>(a.q) + work.b * a.q_stride[0] +
                     int64_t(head_kv * group_of(a) + row + r) * a.q_stride[1];
        const bool inside = own && row + r < group_of(a);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          query[r][e] = inside ? to_float(q[(column + e) * a.q_stride[2]]) * scale : 0.f;
          context[r][e] = 0.f;
        }
        maximum[r] = -INFINITY;
        sum[r] = 0.f;
      }
    }

    const int first = work.tile * kTile + warp * (kTile / kWarps);
#pragma unroll 1
    for (int turn = 0; turn < kTile / kWarps / Groups; turn += kFlight) {
      alignas(16) T key[kFlight][8], value[kFlight][8];
#pragma unroll
      for (int u = 0; u < kFlight; ++u) {
        const int at = first + (turn + u) * Groups + group;
        const bool live = own && at < work.length;
        load_eight(key[u], k + (live ? at * a.k_stride[2] : 0), a.k_stride[3], vectors & 1, live);
        load_eight(value[u], v + (live ? at * a.v_stride[2] : 0), a.v_stride[3], vectors & 2, live);
      }
      float score[kRows][kFlight];
#pragma unroll
      for (int u = 0; u < kFlight; ++u) {
        const bool live = first + (turn + u) * Groups + group < work.length;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          float x = 0.f;
#pragma unroll
          for (int e = 0; e < 8; ++e) x += query[r][e] * to_float(key[u][e]);
#pragma unroll
          for (int d = 1; d < Lanes; d *= 2) x += __shfl_xor_sync(kAll, x, d);
          score[r][u] = live ? x : -INFINITY;
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float top = maximum[r];
#pragma unroll
        for (int u = 0; u < kFlight; ++u) top = fmaxf(top, score[r][u]);
        const float base = top == -INFINITY ? 0.f : top;  // -inf minus -inf would be NaN
        const float shrink = exp2_approx(maximum[r] - base);
        maximum[r] = top;
        sum[r] *= shrink;
#pragma unroll
        for (int e = 0; e < 8; ++e) context[r][e] *= shrink;
#pragma unroll
        for (int u = 0; u < kFlight; ++u) {
          const float weight = exp2_approx(score[r][u] - base);
          sum[r] += weight;
#pragma unroll
          for (int e = 0; e < 8; ++e) context[r][e] += weight * to_float(value[u][e]);
        }
      }
    }

    const bool ends = work.tile + 1 == work.tiles;
    if (ends || step + 1 == steps) {
      const Segment segment{begins, ends, work.b, work.item};
      __syncthreads();  // the previous content has been read
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        merge_lane_groups<Lanes>(maximum[r], sum[r], context[r], [](float x) { return exp2_approx(x); });
        if (group == 0) {
#pragma unroll
          for (int e = 0; e < 8; e += 4)
            *reinterpret_cast<float4*>(&storage.context[warp][r][column + e]) =
                make_float4(context[r][e], context[r][e + 1], context[r][e + 2], context[r][e + 3]);
          if (lane == 0) {
            storage.maximum[warp][r] = maximum[r];
            storage.sum[warp][r] = sum[r];
          }
        }
      }
      __syncthreads();
      merge_warps<T, Width>(a, storage, workspace, segment, kRows, 0, rows);
      if (step + 1 == steps && threadIdx.x == 0) record_unfinished(a, workspace, range, work);
    }
    work.advance(a, items);
  }
}

template <typename T, int Lanes> const char* launch(const AttentionDecodeArgs& a, cudaStream_t stream) {
  const int blocks = multiprocessors() * kBlocksPerSm<T>, rows = rows_of(a, kRows);
  if (!a.workspace) {
    *a.workspace_floats = Workspace::floats(blocks, rows, a.head_dim);
    return nullptr;
  }
  const int how = has_vectors(a.k, a.k_stride, sizeof(T)) | has_vectors(a.v, a.v_stride, sizeof(T)) << 1;
  if (const char* why = launch_dependent(decode_warp_keys<T, Lanes>, blocks, kThreads, 0, stream, 1, a, how))
    return why;
  return launch_dependent(merge_partials<T>, blocks * rows, kThreads, 0, stream, 1, a, blocks, kRows);
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionDecodeArgs* args, void* stream_) {
  if (const char* why = refuse_e4m3(*args)) return why;
  const AttentionDecodeArgs& a = *args;
  auto stream = static_cast<cudaStream_t>(stream_);
  return dispatch(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    return with_width<64, 128, 256>(a.head_dim, [&](auto width) { return launch<T, width / 8>(a, stream); });
  });
}
