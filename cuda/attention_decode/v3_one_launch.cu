// One launch: the last block of a (sequence, KV head) to finish joins the pieces of all; paged caches, up to 8 query
// tokens.
// archs: sm_80 sm_86 sm_89 sm_90a
// expects: HMMA
// takes: fp16 bf16, softcap+sinks
// auto: no, slower than v2_tensor_core wherever it was timed
//
// Rows of a product are the query heads of a KV head times the query tokens, 16 at a time, so that K and V are read
// once for all of them; each warp streams its own 16 keys of every tile (stream.cuh) as in v2. What is new: tiles are
// shared among no more blocks than help (shares.cuh), and the pieces of an item are joined in this launch (join.cuh),
// where v2 launches a second kernel.
#include "../common/device.cuh"
#include "query_rows.cuh"

namespace {
using namespace tensor_core;
using namespace decode;

// The end of an item in this block's share: the result, or a piece of it, and the join if this block is the last.
template <typename T, int Width, bool Biased>
__device__ __forceinline__ void finish(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g,
                                       Rows<T, Width, Biased>& rows, MergeStorage<Width>& storage, const Pieces& pieces,
                                       const Shares& shares, const Run& run, unsigned item_begin, int item_tiles) {
  __shared__ int joins;
  const bool whole = run.begins && run.ends;
  float* const piece = whole ? nullptr : pieces.piece(blockIdx.x, run.begins);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (8 * h >= pieces.rows) break;
    __syncthreads();  // what the storage held has been read
    rows.put(storage, h);
    __syncthreads();
    merge_run<T, Width, Biased>(a, g, storage, pieces, run, piece, 8 * h,
                                pieces.rows - 8 * h < 8 ? pieces.rows - 8 * h : 8);
  }
  if (whole) return;
  const unsigned first = shares.of(item_begin), last = shares.of(item_begin + item_tiles - 1);
  __syncthreads();                                                                       // (1) of join.cuh
  if (threadIdx.x == 0) joins = arrives_last(pieces.tickets + first, last - first + 1);  // (2)
  __syncthreads();                                                                       // (3)
  if (joins) join<T, Width, Biased>(a, g, pieces, run, first, last);
}

// More: AttentionDecodeBias where something is added to scores, else nothing.
template <typename T, int Width, typename... More>
__global__ void __launch_bounds__(kThreads, Ring<Width>::blocks_per_sm) decode_tensor_core_one_launch(
    const __grid_constant__ AttentionDecodeArgs a, const __grid_constant__ AttentionDecodeGeneral g, int how,
    uint64_t tag, More... more) {
  using R = Ring<Width>;
  constexpr bool Biased = holds<AttentionDecodeBias, More...>;
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

  Rows<T, Width, Biased> rows;
  rows.queries = reinterpret_cast<char*>(&storage);  // used between merges
  typename decltype(rows)::Added added(more...);
  bool begins = false;
  unsigned item_begin = 0;
  for (int step = 0; step < steps; ++step) {
    if (step == 0 || work.tile == work.span.first) {  // another item
      begins = work.tile == work.span.first;
      item_begin = begin + step - (work.tile - work.span.first);
      if (threadIdx.x == 0 && !(begins && work.span.tiles() <= steps - step))
        begin_ticket(pieces.tickets + shares.of(item_begin), tag);
      rows.begin(a, g, work, blocks, how & kQueryPairs);
      if constexpr (Biased) rows.begin_added(added, a, g, work, blocks);
    }
    float score[2][4];
    if constexpr (Biased) rows.load_added(added, work.tile * kTile + warp * kUnitKeys);
    const char* const keys = stream.template next<kKeyUnit>();
    const int first = work.tile * kTile + warp * kUnitKeys;
    rows.scores(score, keys, a, g, first, stream.has(step), added);
    rows.weigh(score);
    const char* const values = stream.template next<kValueUnit>();
    bool by_key = seen_by_some(g, work.span.length, first, kUnitKeys);
    if constexpr (Biased) by_key = by_key || added.masks_some();
    if (by_key && holds_non_finite<T, Width>(values)) {
      if constexpr (Biased) rows.mark(score, added);
      rows.add_to_seeing(score, values, first);
    } else {
      rows.add(score, values);
    }

    const bool ends = work.tile + 1 == work.span.end;
    if (ends || step + 1 == steps) {
      const Run run{begins, ends, work.b, work.item / blocks, work.item % blocks * kRows};
      finish(a, g, rows, storage, pieces, shares, run, item_begin, work.span.tiles());
    }
    work.advance(a, g, items);
  }
}

template <typename T, int Width, typename... More> const char* launch(const AttentionDecodeArgs& a,
                                                                      const AttentionDecodeGeneral& g,
                                                                      cudaStream_t stream, const More&... more) {
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
  constexpr auto kernel = decode_tensor_core_one_launch<T, Width, More...>;
  if (const char* why = allow_shared<kernel>(R::bytes)) return why;
  const int how = loads_of(a, g);
  return launch_dependent(kernel, blocks, kThreads, R::bytes, stream, 1, a, g, how, next_tag(), more...);
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionDecodeArgs* args, void* stream) {
  if (const char* why = refuse_e4m3(*args)) return why;
  const AttentionDecodeGeneral general = take_general(*args);
  const AttentionDecodeBias* const bias = take_bias(*args);
  return dispatch_16bit(
      args->dtype,
      "unsupported: float32 on the tensor-core path, which multiplies float16 and bfloat16 (v1_warp_keys takes "
      "float32)",
      [&](auto zero) {
        return with_width<64, 96, 128, 192, 256>(args->head_dim, [&](auto width) {
          using T = decltype(zero);
          const auto on = static_cast<cudaStream_t>(stream);
          return bias ? launch<T, width>(*args, general, on, *bias) : launch<T, width>(*args, general, on);
        });
      });
}
