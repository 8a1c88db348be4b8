// A cluster of blocks per (sequence, KV head), whose pieces are joined through shared memory; queries are the columns
// of a product.
// archs: sm_90a
// expects: HMMA
// takes: fp16 bf16, d<=128, softcap+sinks, fp8-cache, new-token
//
// v3's join goes through global memory: fences, a ticket and a read of pieces cost more than a small cache takes to
// read. Blocks of a cluster send their pieces straight to the shared memory of the block that adds them (cluster.cuh).
// Items are not cut at equal shares of all keys, as in v1 to v3, but each into as many equal parts as its cluster has
// blocks, so a block has one item and its ring's memory is free for the merge. Where items of many keys are so few that
// clusters of the largest size leave SMs idle, an item has several clusters, whose results are joined as in v3.
//
// With a new token (new_token.cuh) the blocks load what the caches hold while the kernel before still runs, if that
// wrote nothing of it. With something added to the scores (added_scores.cuh) a warp reads the bias of its next unit
// while it waits for the unit's keys.
#include "../common/cluster.cuh"
#include "../common/dependent.cuh"
#include "byte_columns.cuh"
#include "cluster_parts.cuh"
#include "new_token.cuh"
#include "unit_stream.cuh"

namespace {
using namespace tensor_core;
using namespace decode;
template <typename... More> constexpr bool adds_token = holds<AttentionDecodeNew, More...>;
template <typename... More> constexpr bool biased = holds<AttentionDecodeBias, More...>;

// 2^log_clusters clusters of 2^log_blocks blocks per item: rows of one KV head of one sequence. One token sees all keys
// that are loaded; code that looks at values, even if it never runs, costs a call on few keys 5 % (NOTES.md). C: an
// element of the cache; More: AttentionDecodeScales where that is E4m3; AttentionDecodeNew with a new token;
// AttentionDecodeBias where something is added to scores, which a bias may mask: never OneToken.
template <typename T, typename C, int Width, int Eights, bool OneToken, typename... More>
__global__ void __launch_bounds__(kThreads, Shape<C, Width, Eights>::blocks_per_sm) decode_cluster(
    const __grid_constant__ AttentionDecodeArgs a, const __grid_constant__ AttentionDecodeGeneral g, int how,
    int log_blocks, int log_clusters, uint64_t tag, More... more) {
  using S = Shape<C, Width, Eights>;
  constexpr bool bytes = std::is_same_v<C, E4m3>, adds = adds_token<More...>, Biased = biased<More...>;
  using Unit = Units<Biased>;
  extern __shared__ __align__(128) char shared[];  // all of it dynamic: four small blocks just fit an SM
  float* const inbox = reinterpret_cast<float*>(shared + kWarps * S::stages * S::unit_bytes);
  float2* const inbox_statistics = reinterpret_cast<float2*>(inbox + S::inbox_floats);
  uint64_t* const received = reinterpret_cast<uint64_t*>(inbox_statistics + S::statistics / 2);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, blocks = 1 << log_blocks;
  const int log_parts = log_blocks + log_clusters, part_of_item = blockIdx.x & ((1 << log_parts) - 1);
  const int rank = blockIdx.x & (blocks - 1), cell = blockIdx.x >> log_parts;
  const int row_cell = Eights == 1 ? cell : cell / row_blocks(a, g), b = row_cell / a.heads_kv;
  const int head_kv = row_cell - b * a.heads_kv;
  const int first_row = Eights == 1 ? 0 : (cell - row_cell * row_blocks(a, g)) * S::rows;
  const int rows = all_rows(a, g) - first_row < S::rows ? all_rows(a, g) - first_row : S::rows;

  // Four columns of a row are a chunk; block r of the cluster adds chunks r, r + blocks, r + 2 blocks, ...
  const int per_row = a.head_dim / 4, chunks = rows * per_row;
  const int own = (chunks - rank + blocks - 1) >> log_blocks, apart = (chunks + blocks - 1) >> log_blocks | 1;
  if (blocks > 1) {
    if (threadIdx.x == 0) cluster::open(received, unsigned(blocks * (own * sizeof(float4) + rows * sizeof(float2))));
    cluster::arrive();
  }
  NewToken<T, Width> token;
  if constexpr (adds) {
    if (!(how & kSettled)) wait_for_previous();
    token.read_numbers((more, ...), b);
  } else {
    wait_for_previous();
    if (how & kNextAtOnce) let_next_start();
  }

  std::conditional_t<bytes, ByteColumns<T, Width, Eights, Biased>, QueryColumns<T, Width, Eights, Biased>> columns;
  if constexpr (!adds) columns.load(a, g, b, head_kv, first_row, how & kQueryPairs);
  const Span span = span_of(a, g, b);
  const int first = span.low / kUnitKeys, units = (span.length + kUnitKeys - 1) / kUnitKeys - first;
  const int begin = first + int(int64_t(units) * part_of_item >> log_parts),
            end = first + int(int64_t(units) * (part_of_item + 1) >> log_parts);
  UnitStream<C, Width, Eights> stream{a,
                                      g,
                                      shared + warp * S::stages * S::unit_bytes,
                                      static_cast<const C*>(a.k) + head_kv * a.k_stride[1],
                                      static_cast<const C*>(a.v) + head_kv * a.v_stride[1],
                                      g.block_table ? g.block_table + b * g.table_row : nullptr,
                                      b,
                                      span.low,
                                      span.length,
                                      how,
                                      begin + warp,
                                      end};
  if constexpr (adds) token.begin(a, g, (more, ...), b);
  stream.start();
  if constexpr (adds) {
    token.begun(g);
    wait_for_previous();
    if (how & kNextAtOnce) let_next_start();
    char* const queries = stream.free_stage();
    token.template load<Eights>(a, (more, ...), b, head_kv, first_row, rows, queries);
    columns.read(queries);
    if (part_of_item == 0 && first_row == 0 && warp == 0) token.write(a, g, (more, ...), head_kv);
    token.limit(span.length);
  }
  float v_scale = 1.f;
  if constexpr (bytes) {
    const AttentionDecodeScales& scales = of_type<AttentionDecodeScales>(more...);
    const float k_scale = scales.k[head_kv];
    v_scale = scales.v[head_kv];
    columns.begin(a, g, first_row, span.length, k_scale);
  } else {
    columns.begin(g, first_row, span.length);
  }
  const int place = (cell << log_blocks) + rank;
  if (log_clusters > 0 && threadIdx.x == 0) begin_ticket(Joint::ticket_of(a.workspace, place), tag);
  typename decltype(columns)::Added added(more...);
  if constexpr (Biased) columns.begin_added(added, a, g, b, head_kv, first_row);
  int done = 0;
  for (int unit = begin + warp; unit < end; unit += kWarps) {
    float score[Eights][4];
    if constexpr (Biased) columns.load_added(added, unit * kUnitKeys);
    char* const keys = stream.template next<kKeyUnit>();
    if constexpr (adds)
      if (token.is_in(unit)) token.template put<kKeyUnit>(keys);
    columns.scores(score, keys, a, g, unit * kUnitKeys, stream.present >> (stream.loaded - 1 - done++) & 1, added);
    columns.weigh(score);
    char* const values = stream.template next<kValueUnit>();
    if constexpr (adds)
      if (token.is_in(unit)) token.template put<kValueUnit>(values);
    bool by_key = !OneToken && seen_by_some(g, span.length, unit * kUnitKeys, kUnitKeys);
    if constexpr (Biased) by_key = by_key || added.masks_some();
    if (by_key && columns.spoilt(values)) {
      if constexpr (Biased) columns.mark(score, added);
      columns.add_to_seeing(score, values, unit * kUnitKeys);
    } else {
      columns.add(score, values);
    }
  }
  if (!adds && how & kNextAfterKeys) let_next_start();

  // The warps' columns, as rows, into the memory of the rings.
  async_copy::wait<0>();
  __syncthreads();
  float* const contexts = reinterpret_cast<float*>(shared);  // (kWarps, rows, row_floats)
  float2* const statistics = reinterpret_cast<float2*>(contexts + kWarps * S::rows * S::row_floats);  // (kWarps, rows)
#pragma unroll
  for (int n = 0; n < Eights; ++n)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int row = 8 * n + 2 * (lane % 4) + c;
      const float total = columns.total(n, c);
      if (lane < 4) statistics[warp * S::rows + row] = make_float2(columns.maximum[n][c], total);
      float* const to = contexts + (warp * S::rows + row) * S::row_floats + lane / 4 * (bytes ? 2 : 1);
#pragma unroll
      for (int s = 0; s < Width / 16; ++s) {
        if constexpr (bytes)
          *reinterpret_cast<float2*>(to + 16 * s) = make_float2(columns.out[s][n][c], columns.out[s][n][2 + c]);
        else
          to[16 * s] = columns.out[s][n][c], to[16 * s + 8] = columns.out[s][n][2 + c];
      }
    }
  __syncthreads();

  const auto store = [&](int row, int column, const Part& part) {
    const int in_group = g.tokens == 1 ? first_row + row : (first_row + row) / g.tokens;
    const float by = divisor<Biased>(g, head_kv * group_of(a) + in_group, part.base(), part.sum);
    const float inverse = by == 0.f ? 0.f : v_scale / by;
    const int64_t at = int64_t(b) * a.heads * g.tokens + head_kv * all_rows(a, g) + first_row + row;
    *reinterpret_cast<uint2*>(static_cast<T*>(a.out) + at * a.head_dim + column) =
        uint2{pack<T>(part.context[0] * inverse, part.context[1] * inverse),
              pack<T>(part.context[2] * inverse, part.context[3] * inverse)};
  };
  if (blocks > 1) cluster::wait();
  for (int row = warp; row < rows; row += kWarps) {
    if (lane >= per_row) break;
    Part part;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) part.top = fmaxf(part.top, statistics[w * S::rows + row].x);
    const float base = part.base();
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float2 of = statistics[w * S::rows + row];
      part.add(Unit::weight(of.x - base), of.y,
               *reinterpret_cast<const float4*>(contexts + (w * S::rows + row) * S::row_floats + 4 * lane));
    }
    if (blocks == 1) {
      store(row, 4 * lane, part);
      continue;
    }
    const int chunk = row * per_row + lane;
    cluster::send(reinterpret_cast<float4*>(inbox) + rank * apart + (chunk >> log_blocks),
                  make_float4(part.context[0], part.context[1], part.context[2], part.context[3]), chunk & (blocks - 1),
                  received);
    for (int other = lane; other < blocks; other += per_row)
      cluster::send(inbox_statistics + rank * S::rows + row, make_float2(part.top, part.sum), other, received);
  }
  if (blocks == 1) return;
  if (!adds && how & kNextAfterSending) let_next_start();

  const auto store_chunk = [&](int i, const Part& part) {
    const int chunk = rank + (i << log_blocks), row = a.head_dim == Width ? chunk / (Width / 4) : chunk / per_row;
    store(row, (chunk - row * per_row) * 4, part);
  };
  const Joint joint(a.workspace, place, int64_t(gridDim.x) >> log_clusters, log_clusters, S::chunks >> log_blocks);
  cluster::await(received);
  add_received<Biased>(
      own, log_blocks, S::rows, apart,
      [&](int i) {
        const int chunk = rank + (i << log_blocks), row = a.head_dim == Width ? chunk / (Width / 4) : chunk / per_row;
        return Sent{inbox_statistics + row, reinterpret_cast<const float4*>(inbox) + i};
      },
      [&](int i, const Part& part) {
        if (log_clusters == 0)
          store_chunk(i, part);
        else
          joint.put(part_of_item >> log_blocks, i, part);
      });
  if (log_clusters == 0) return;

  __syncthreads();                                                                       // (1) of join.cuh
  const bool last = threadIdx.x == 0 && arrives_last(joint.ticket, 1u << log_clusters);  // (2)
  if (__syncthreads_or(last)) joint.template add<Biased>(own, store_chunk);              // (3)
}

template <typename T, typename C, int Width, int Eights, bool OneToken, typename... More>
const char* launch(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g, cudaStream_t stream,
                   const More&... more) {
  using S = Shape<C, Width, Eights>;
  if constexpr (adds_token<More...>)
    if (const char* why = refuse_new(a, more...)) return why;
  const int64_t items = int64_t(a.batch) * a.heads_kv * row_blocks(a, g);
  const int64_t longest = (a.seq_max + kUnitKeys - 1) / kUnitKeys,
                seen = g.window ? (g.window + g.tokens) / kUnitKeys + 2 : longest;
  const int64_t units = seen < longest ? seen : longest;
  if (items * kMostBlocks >= int64_t(1) << 31) return "unsupported: 2^27 sequences times KV heads or more";
  constexpr auto kernel = decode_cluster<T, C, Width, Eights, OneToken, More...>;
  if (const char* why = allow_shared<kernel>(S::bytes > kBytesOfTwo ? S::bytes : kBytesOfTwo)) return why;
  const Parts parts = parts_of<std::is_same_v<C, E4m3>, Eights>(
      a.batch, items, units, [&] { return cluster::resident<kernel>(kMostBlocks, kThreads, S::bytes) >= items; });
  const auto [blocks, clusters] = parts;
  if (clusters && !a.workspace) {
    *a.workspace_floats = Joint::floats(items << blocks, 1 << clusters, S::chunks >> blocks);
    return nullptr;
  }
  Overlap overlap = overlap_of<S>(items, parts, units);
  int how = loads_of(a, g, sizeof(C));
  if constexpr (adds_token<More...>) {
    overlap = overlap_beside_others<S>(items, parts, units);
    how |= (more.settled, ...) ? kSettled : 0;
  }
  return launch_dependent(kernel, unsigned(items << blocks << clusters), kThreads, overlap.bytes, stream, 1u << blocks,
                          a, g, how | overlap.next, blocks, clusters, clusters ? next_tag() : 0, more...);
}

// C: an element of the cache; more: as decode_cluster takes it.
template <typename T, typename C, typename... More>
const char* launch_columns(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g, cudaStream_t stream,
                           const More&... more) {
  return with_width<64, 128>(a.head_dim, [&](auto width) {
    const auto launched = [&](auto one_token) {
      constexpr bool One = decltype(one_token)::value;
      return all_rows(a, g) <= 8 ? launch<T, C, width, 1, One>(a, g, stream, more...)
                                 : launch<T, C, width, 2, One>(a, g, stream, more...);
    };
    if constexpr (biased<More...>)
      return launched(std::false_type{});
    else if constexpr (adds_token<More...>)
      return launched(std::true_type{});
    else
      return g.tokens > 1 ? launched(std::false_type{}) : launched(std::true_type{});
  });
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionDecodeArgs* args, void* stream) {
  if (args->head_dim > 128) return "unsupported: head_dim above 128 in a cluster (v3_one_launch takes up to 256)";
  return dispatch_16bit(
      args->dtype & ~kE4m3Cache,
      "unsupported: float32 on the tensor-core path, which multiplies float16 and bfloat16 (v1_warp_keys takes "
      "float32)",
      [&](auto zero) {
        using T = decltype(zero);
        const auto on = static_cast<cudaStream_t>(stream);
        const AttentionDecodeGeneral g = take_general(*args);
        if (const AttentionDecodeNew* token = take_new(*args)) return launch_columns<T, T>(*args, g, on, *token);
        const auto with_cache = [&](auto... more) {
          return args->dtype & kE4m3Cache ? launch_columns<T, E4m3>(*args, g, on, scales_of(*args), more...)
                                          : launch_columns<T, T>(*args, g, on, more...);
        };
        const AttentionDecodeBias* bias = take_bias(*args);
        return bias ? with_cache(*bias) : with_cache();
      });
}
