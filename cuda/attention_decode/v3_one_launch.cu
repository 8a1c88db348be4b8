// One launch: the last block of a (sequence, KV head) to finish joins the pieces of all; paged caches, up to 8 query
// tokens.
// archs: sm_80 sm_86 sm_89 sm_90a
// expects: HMMA
// takes: fp16 bf16, d<=128, softcap+sinks
// auto: no, slower than v2_tensor_core wherever it was timed
//
// Rows of a product are the query heads of a KV head times the query tokens, 16 at a time, so that K and V are read
// once for all of them; each warp streams its own 16 keys of every tile (stream.cuh) as in v2. What is new: tiles are
// shared among no more blocks than help (shares.cuh), and the pieces of an item are joined in this launch (join.cuh),
// where v2 launches a second kernel.
#include "../common/device.cuh"
#include "stream.cuh"

namespace {
using namespace tensor_core;
using namespace decode;

// What a lane holds of an item: rows quad and quad + 8 of 16, in the layout of mma.
template <typename T, int Width> struct Rows {
  static constexpr int Steps = Width / 16;
  uint32_t query[Steps][4];
  float maximum[2], sum[2], out[Width / 8][4];
  int low[2], high[2];  // keys that a row sees: low <= key < high

  __device__ __forceinline__ void begin(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g,
                                        const Place& work, int blocks, bool pairs) {
    const int quad = threadIdx.x % 32 / 4, pair = threadIdx.x % 4, head = work.item / blocks * group_of(a);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = work.item % blocks * kRows + quad + 8 * h, token = row % g.tokens;
      const bool inside = row < all_rows(a, g);
      const T* from = static_cast<const T*>(a.q) + work.b * a.q_stride[0] + (head + row / g.tokens) * a.q_stride[1] +
                      token * g.q_token;
      high[h] = work.span.length - g.tokens + 1 + token;
      low[h] = g.window ? high[h] - g.window : 0;
#pragma unroll
      for (int s = 0; s < Steps; ++s)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int column = 16 * s + 2 * pair + 8 * e;
          query[s][2 * e + h] = query_pair(from, a.q_stride[2], column, inside && column < a.head_dim, pairs);
        }
      maximum[h] = -INFINITY, sum[h] = 0.f;
    }
#pragma unroll
    for (int n = 0; n < Width / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) out[n][e] = 0.f;
  }

  // score[n][e]: row quad + 8 (e / 2), key first + 8 n + 2 pair + e % 2, as a power of 2; -inf where it is not seen.
  __device__ __forceinline__ void scores(float (&score)[2][4], const char* keys, const AttentionDecodeArgs& a,
                                         const AttentionDecodeGeneral& g, int first, bool present) const {
    const int lane = threadIdx.x % 32;
    float part[2][2][4] = {};  // even and odd steps apart, so that products wait less for one another
#pragma unroll
    for (int s = 0; s < Steps; ++s) {
      uint32_t key[4];
      ldmatrix_x4(key, shared_address(keys + place<Width>(lane % 8 + 8 * (lane / 16), 2 * s + (lane / 8) % 2)));
      mma_m16n8k16<T>(part[s % 2][0], query[s], {key[0], key[1]});
      mma_m16n8k16<T>(part[s % 2][1], query[s], {key[2], key[3]});
    }
    const float scale = g.softcap > 0.f ? a.scale / g.softcap : a.scale * kLog2e;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) score[n][e] = (part[0][n][e] + part[1][n][e]) * scale;
    if (g.softcap > 0.f) {
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) score[n][e] = g.softcap * kLog2e * tanhf(score[n][e]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = first + 8 * n + 2 * (lane % 4) + e % 2;
        if (!present || key < low[e / 2] || key >= high[e / 2]) score[n][e] = -INFINITY;
      }
  }

  // Online softmax over the four lanes of a row: scores become weights. The maximum is raised only when it grows by
  // more than 2^8: sums and contexts stay in range, and most steps need no rescaling.
  __device__ __forceinline__ void weigh(float (&score)[2][4]) {
    float shrink[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = fmaxf(fmaxf(score[0][2 * h], score[0][2 * h + 1]), fmaxf(score[1][2 * h], score[1][2 * h + 1]));
      top = fmaxf(top, __shfl_xor_sync(kAll, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAll, top, 2));
      const bool raise = top > maximum[h] + 8.f || maximum[h] == -INFINITY;
      const float next = raise ? top : maximum[h];
      const float base = next == -INFINITY ? 0.f : next;  // -inf minus -inf would be NaN
      shrink[h] = raise ? exp2_approx(maximum[h] - base) : 1.f;
      maximum[h] = next;
      float total = 0.f;
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) total += score[n][2 * h + e] = exp2_approx(score[n][2 * h + e] - base);
      sum[h] = sum[h] * shrink[h] + total;
    }
    if (shrink[0] == 1.f && shrink[1] == 1.f) return;
#pragma unroll
    for (int n = 0; n < Width / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) out[n][e] *= shrink[e / 2];
  }

  __device__ __forceinline__ void add(const float (&weight)[2][4], const char* values) {
    const int lane = threadIdx.x % 32;
    const uint32_t weights[4] = {pack<T>(weight[0][0], weight[0][1]), pack<T>(weight[0][2], weight[0][3]),
                                 pack<T>(weight[1][0], weight[1][1]), pack<T>(weight[1][2], weight[1][3])};
#pragma unroll
    for (int n = 0; n < Width / 16; ++n) {
      uint32_t value[4];
      ldmatrix_x4_trans(value, shared_address(values + place<Width>(lane % 16, 2 * n + lane / 16)));
      mma_m16n8k16<T>(out[2 * n], weights, {value[0], value[1]});
      mma_m16n8k16<T>(out[2 * n + 1], weights, {value[2], value[3]});
    }
  }

  // The same key by key, each for the rows that see it: weight 0 times a NaN or an infinity would be NaN. first: the
  // unit's first key.
  __device__ __forceinline__ void add_to_seeing(const float (&weight)[2][4], const char* values, int first) {
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int key = 0; key < kUnitKeys; ++key) {
      float here[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float even = key < 8 ? weight[0][2 * h] : weight[1][2 * h];
        const float odd = key < 8 ? weight[0][2 * h + 1] : weight[1][2 * h + 1];
        here[h] = __shfl_sync(kAll, key % 2 ? odd : even, lane / 4 * 4 + key % 8 / 2);
      }
#pragma unroll
      for (int n = 0; n < Width / 8; ++n) {
        const T* const two = reinterpret_cast<const T*>(values + place<Width>(key, n)) + 2 * (lane % 4);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (first + key >= low[e / 2] && first + key < high[e / 2])
            out[n][e] = fmaf(here[e / 2], to_float(two[e % 2]), out[n][e]);
      }
    }
  }

  // Puts rows 8 h ... 8 h + 7 into the warp's part of the storage.
  __device__ __forceinline__ void put(MergeStorage<Width>& storage, int h) {
    const int quad = threadIdx.x % 32 / 4, pair = threadIdx.x % 4, warp = threadIdx.x / 32;
    float total = sum[h];
    total += __shfl_xor_sync(kAll, total, 1);
    total += __shfl_xor_sync(kAll, total, 2);
#pragma unroll
    for (int n = 0; n < Width / 8; ++n)
      *reinterpret_cast<float2*>(&storage.context[warp][quad][8 * n + 2 * pair]) =
          make_float2(out[n][2 * h], out[n][2 * h + 1]);
    if (pair == 0) {
      storage.maximum[warp][quad] = maximum[h];
      storage.sum[warp][quad] = total;
    }
  }
};

// The end of an item in this block's share: the result, or a piece of it, and the join if this block is the last.
template <typename T, int Width>
__device__ __forceinline__ void finish(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g,
                                       Rows<T, Width>& rows, MergeStorage<Width>& storage, const Pieces& pieces,
                                       const Shares& shares, const Run& run, unsigned item_begin, int item_tiles,
                                       uint64_t tag) {
  __shared__ int joins;
  const bool whole = run.begins && run.ends;
  float* const piece = whole ? nullptr : pieces.piece(blockIdx.x, run.begins);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (8 * h >= pieces.rows) break;
    __syncthreads();  // what the storage held has been read
    rows.put(storage, h);
    __syncthreads();
    merge_run<T, Width>(a, g, storage, pieces, run, piece, 8 * h, pieces.rows - 8 * h < 8 ? pieces.rows - 8 * h : 8);
  }
  if (whole) return;
  const unsigned first = shares.of(item_begin), last = shares.of(item_begin + item_tiles - 1);
  __syncthreads();  // (1) of join.cuh
  if (threadIdx.x == 0) {
    fence_gpu();  // (2)
    joins = arrives_last(pieces.tickets + first, tag, last - first + 1);
    fence_gpu();  // (3)
  }
  __syncthreads();  // (4)
  if (joins) join<T>(a, g, pieces, run, first, last);
}

template <typename T, int Width>
__global__ void __launch_bounds__(kThreads, Ring<Width>::blocks_per_sm) decode_tensor_core_one_launch(
    const __grid_constant__ AttentionDecodeArgs a, const __grid_constant__ AttentionDecodeGeneral g, int how,
    uint64_t tag) {
  using R = Ring<Width>;
  extern __shared__ __align__(128) char shared[];
  const int warp = threadIdx.x / 32, blocks = row_blocks(a, g), items = a.heads_kv * blocks;
  MergeStorage<Width>& storage = *reinterpret_cast<MergeStorage<Width>*>(shared + kWarps * R::units * R::unit_bytes);
  const Pieces pieces(a.workspace, gridDim.x, item_rows(a, g), a.head_dim);

  wait_for_previous();
  let_next_start();
  for (int b = blockIdx.x; b < a.batch; b += gridDim.x)  // sequences without keys have no tile
    if (length_of(a, b) == 0) {
      const int64_t size = int64_t(a.heads) * g.tokens * a.head_dim;
      for (int64_t i = threadIdx.x; i < size; i += kThreads) static_cast<T*>(a.out)[b * size + i] = from_float<T>(0.f);
    }
  const Shares shares = shares_of(a, g, items);
  if (blockIdx.x >= shares.count) return;
  const unsigned begin = shares.begin(blockIdx.x);
  const int steps = int(shares.begin(blockIdx.x + 1) - begin);
  Place work = place_of(a, g, items, begin);
  Stream<T, Width> stream{
      a, g, shared + warp * R::units * R::unit_bytes, items, blocks, how, warp, work, steps, 0, 0, 0, 0, 0};
  stream.start();

  Rows<T, Width> rows;
  bool begins = false;
  for (int step = 0; step < steps; ++step) {
    if (step == 0 || work.tile == work.span.first) {  // another item
      begins = work.tile == work.span.first;
      rows.begin(a, g, work, blocks, how & kQueryPairs);
    }
    float score[2][4];
    const char* const keys = stream.template next<kKeyUnit>();
    const int first = work.tile * kTile + warp * kUnitKeys;
    rows.scores(score, keys, a, g, first, stream.has(step));
    rows.weigh(score);
    const char* const values = stream.template next<kValueUnit>();
    if (seen_by_some(g, work.span.length, first, kUnitKeys) && holds_non_finite<T, Width>(values))
      rows.add_to_seeing(score, values, first);
    else
      rows.add(score, values);

    const bool ends = work.tile + 1 == work.span.end;
    if (ends || step + 1 == steps) {
      const Run run{begins, ends, work.b, work.item / blocks, work.item % blocks * kRows};
      finish(a, g, rows, storage, pieces, shares, run, begin + step - (work.tile - work.span.first), work.span.tiles(),
             tag);
    }
    work.advance(a, g, items);
  }
}

template <typename T, int Width>
const char* launch(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g, cudaStream_t stream) {
  using R = Ring<Width>;
  const int64_t longest = (a.seq_max + kTile - 1) / kTile,
                seen = g.window ? (g.window + g.tokens) / kTile + 2 : longest;
  const int64_t tiles = int64_t(a.batch) * a.heads_kv * row_blocks(a, g) * (seen < longest ? seen : longest);
  if (tiles >= int64_t(1) << 31) return "unsupported: 2^31 tiles of 64 keys or more over all sequences and KV heads";
  const int most = multiprocessors() * R::blocks_per_sm, blocks = tiles < most ? int(tiles) : most;
  if (!a.workspace) {
    *a.workspace_floats = Pieces::floats(blocks, item_rows(a, g), a.head_dim);
    return nullptr;
  }
  if (const char* why = allow_shared<decode_tensor_core_one_launch<T, Width>>(R::bytes)) return why;
  const int how = loads_of(a, g);
  return launch_dependent(decode_tensor_core_one_launch<T, Width>, blocks, kThreads, R::bytes, stream, 1, a, g, how,
                          next_tag());
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionDecodeArgs* args, void* stream) {
  if (const char* why = refuse_e4m3(*args)) return why;
  const AttentionDecodeGeneral general = take_general(*args);
  if (args->head_dim > 128) return "unsupported: head_dim above 128 in one launch (v2_tensor_core takes up to 256)";
  return dispatch_16bit(
      args->dtype,
      "unsupported: float32 on the tensor-core path, which multiplies float16 and bfloat16 (v1_warp_keys takes "
      "float32)",
      [&](auto zero) {
        return with_width<64, 96, 128>(args->head_dim, [&](auto width) {
          return launch<decltype(zero), width>(*args, general, static_cast<cudaStream_t>(stream));
        });
      });
}
