// Hopper, a mask in parts: rows in order of residues where that makes it dense, long lists cut into pieces for several blocks.
// archs: sm_90a
// expects: HGMMA UTMALDG
//
// The kernel is v4's (hopper_scheduled.cuh) on items of work (parts.h) instead of whole lists. A dilated mask is a sliding window inside
// each residue class, a strided one a window and, in order of residues, a triangle: TMA fetches 64 rows of such an order as one box, and
// results go to the rows' own places, so nothing is copied. A list that would keep one block busy while others are done is cut; its
// pieces leave sums and contexts in fp32, which a second kernel joins in their order. Where parts follow one another, rows are merged by
// log-sum-exp with what is already there. Everything happens in a fixed order, so that results repeat bit for bit.
#include "../common/launch.cuh"
#include "hopper_scheduled.cuh"
#include "parts.h"

namespace {
using namespace hopper;

__device__ __forceinline__ int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

struct Items {
  using Argument = Items;
  static constexpr bool whole_lists = false;

  const int4* items;
  const int4* joins;
  const int4* schedule;
  float* slots;
  float* lse;  // of every row, in powers of two; nullptr where the mask is one part
  int64_t out_stride[3];
  int long_count, rest_count, join_count, slot_count;
  int mask_heads, copy_heads;  // masks, or copies, of a batch entry
  int q_modulus, q_length;
  bool later, more;  // merges with rows that are there; leaves rows for a part to come

  struct At {
    int q_block, b, h, entry, slot, steps, end0, begin1;
  };
  __device__ __forceinline__ int batch_entry(int mask, int copy) const { return mask / mask_heads + copy / copy_heads; }
  __device__ __forceinline__ int head(int mask, int copy) const { return mask % mask_heads + copy % copy_heads; }

  template <bool Split> __device__ __forceinline__ At at(const AttentionArgs& args) const {
    // Long items of all heads first, then the rest, either head by head so that K and V of a head stay in the cache.
    const int copies = args.batch * args.heads / masks(args), longs = long_count * copies;
    const bool rest = int(blockIdx.x) >= longs;
    const int turn = rest ? blockIdx.x - longs : blockIdx.x, count = rest ? rest_count : long_count;
    const int copy = turn / count, item = turn % count + (rest ? long_count : 0);
    const int4 where = items[2 * item], what = items[2 * item + 1];
    const int mask = uniform(where.y), slot = uniform(where.w);
    return {uniform(where.x), batch_entry(mask, copy), head(mask, copy), uniform(where.z), slot < 0 ? -1 : copy * slot_count + slot,
            uniform(what.x), uniform(what.y), uniform(what.z)};
  }
  __device__ __forceinline__ static int masks(const AttentionArgs& args) {
    return (args.mask_stride_b ? args.batch : 1) * (args.mask_stride_h ? args.heads : 1);
  }
  __device__ __forceinline__ void load_q(void* to, const CUtensorMap* map, uint64_t* barrier, int column, int tile, int h, int b) const {
    load_tile(to, map, barrier, column, tile * 64 % q_length, tile * 64 / q_length, h, b);
  }
  __device__ __forceinline__ void load_kv(void* to, const CUtensorMap* map, uint64_t* barrier, int column, int index, int residue, int h_kv, int b) const {
    load_tile(to, map, barrier, column, index, residue, h_kv, b);
  }
  template <int Threads> __device__ __forceinline__ void copy_schedule(const At& at, int4* to) const {
    if (threadIdx.x == 0) to[0] = make_int4(at.steps, 0, at.end0, at.begin1);
    for (int i = threadIdx.x; i < 2 * at.steps; i += Threads) to[1 + i] = schedule[at.entry + i];
  }

  template <int Panels> __device__ __forceinline__ float* slot_of(int slot, int half) const {
    return slots + (int64_t(slot) * 2 + half) * ((32 * Panels + 4) * 128) + threadIdx.x % 128;
  }
  template <typename T, int Panels, int Acc>
  __device__ __forceinline__ void finish(const AttentionArgs& args, const At& at, uint8_t* tile, int wg, float (&o)[Acc], float (&sum)[2],
                                         float (&maximum)[2], float factor) const {
    if (at.slot < 0) return store<T, Panels>(args, at.b, at.h, 2 * at.q_block + wg, tile, wg, o, sum, maximum, factor);
    float* const to = slot_of<Panels>(at.slot, wg);
#pragma unroll
    for (int i = 0; i < 32 * Panels; ++i) to[i * 128] = o[i];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      to[(32 * Panels + r) * 128] = sum[r];
      to[(32 * Panels + 2 + r) * 128] = maximum[r];
    }
  }

  // The rows of a query tile to out, by all threads of warpgroup wg (0 or 1); arguments as of finish.
  template <typename T, int Panels, int Acc>
  __device__ __forceinline__ void store(const AttentionArgs& args, int b, int h, int q_tile, uint8_t* tile, int wg, const float (&o)[Acc],
                                        const float (&sum)[2], const float (&maximum)[2], float factor) const {
    auto row_of = [&](int place) { return place % q_length * q_modulus + place / q_length; };
    const int lane = threadIdx.x % 32, first = 16 * (threadIdx.x / 32 % 4) + lane / 4, t2 = 2 * (lane % 4);
    T* const out = static_cast<T*>(args.out) + b * out_stride[0] + h * out_stride[1];
    float mine[2], theirs[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      mine[r] = sum[r] > 0.f ? 1.f / sum[r] : 0.f;
      theirs[r] = 0.f;
      if (lse) {
        const int place = q_tile * 64 + first + 8 * r;
        const bool inside = place < args.seq_q;
        float* const known = lse + int64_t(b * args.heads + h) * args.seq_q + (inside ? row_of(place) : 0);
        float now = sum[r] > 0.f ? maximum[r] * factor + log2f(sum[r]) : -INFINITY;
        if (later) {
          const float before = inside ? *known : -INFINITY, top = fmaxf(before, now), shift = top == -INFINITY ? 0.f : top;
          const float old_share = exp2_approx(before - shift), new_share = exp2_approx(now - shift), total = old_share + new_share;
          theirs[r] = total > 0.f ? old_share / total : 0.f;
          mine[r] *= total > 0.f ? new_share / total : 0.f;
          now = total > 0.f ? shift + log2f(total) : -INFINITY;
        }
        __syncwarp();  // all lanes of the row have read it
        if (more && inside && t2 == 0) *known = now;
      }
    }
    // Through shared memory, so that rows are read and written in whole pieces of 16 bytes.
    auto each_piece = [&](auto visit) {
      for (int i = threadIdx.x % 128; i < 64 * 8 * Panels; i += 128) {
        const int c = i % (8 * Panels), r = i / (8 * Panels), place = q_tile * 64 + r;
        if (place < args.seq_q && c * 8 < args.head_dim)
          visit(*reinterpret_cast<uint4*>(tile + c / 8 * kTileBytes + r * 128 + ((c % 8 ^ (r & 7)) << 4)),
                *reinterpret_cast<uint4*>(out + row_of(place) * out_stride[2] + c * 8));
      }
    };
    warpgroup_barrier(wg);
    if (later) {
      each_piece([](uint4& here, const uint4& there) { here = there; });
      warpgroup_barrier(wg);
    }
#pragma unroll
    for (int j = 0; j < 8 * Panels; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = first + 8 * r;
        T* const two = reinterpret_cast<T*>(tile + j / 8 * kTileBytes + row * 128 + ((j % 8 ^ (row & 7)) << 4) + 2 * t2);
        float x[2] = {o[4 * j + 2 * r] * mine[r], o[4 * j + 2 * r + 1] * mine[r]};
        if (later) {
          x[0] += to_float(two[0]) * theirs[r];
          x[1] += to_float(two[1]) * theirs[r];
        }
        *reinterpret_cast<uint32_t*>(two) = tensor_core::pack<T>(x[0], x[1]);
      }
    warpgroup_barrier(wg);
    each_piece([](const uint4& here, uint4& there) { there = here; });
  }
};

// A block a (copy, list that was cut, query tile of its pair): the pieces' results in their order.
template <typename T, int Panels> __global__ void __launch_bounds__(128) attention_scheduled_join(const __grid_constant__ AttentionArgs args, Items work) {
  __shared__ __align__(16) uint8_t tile[Panels * kTileBytes];
  const int half = blockIdx.x % 2, turn = blockIdx.x / 2, copy = turn / work.join_count;
  const int4 cut = work.joins[2 * (turn % work.join_count)];
  const float factor = args.scale * kLog2e;
  const float* const first = work.slot_of<Panels>(copy * work.slot_count + cut.z, half);
  constexpr int64_t kSlot = 2 * (32 * Panels + 4) * 128;
  float o[32 * Panels], maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f};
#pragma unroll
  for (int i = 0; i < 32 * Panels; ++i) o[i] = 0.f;
  for (int piece = 0; piece < cut.w; ++piece)
#pragma unroll
    for (int r = 0; r < 2; ++r) maximum[r] = fmaxf(maximum[r], first[piece * kSlot + (32 * Panels + 2 + r) * 128]);
  for (int piece = 0; piece < cut.w; ++piece) {
    const float* const from = first + piece * kSlot;
    float share[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float top = from[(32 * Panels + 2 + r) * 128];  // a row without a key so far: -inf, of which nothing may be subtracted
      share[r] = top == -INFINITY ? 0.f : exp2_approx((top - maximum[r]) * factor);
      sum[r] += from[(32 * Panels + r) * 128] * share[r];
    }
#pragma unroll
    for (int i = 0; i < 32 * Panels; ++i) o[i] += from[i * 128] * share[(i >> 1) & 1];
  }
  work.store<T, Panels>(args, work.batch_entry(cut.y, copy), work.head(cut.y, copy), 2 * cut.x + half, tile, 0, o, sum, maximum, factor);
}

template <typename T, int Panels> const char* launch(const AttentionPartsArgs& all, cudaStream_t stream) {
  using S = Shape<Panels, 2, false>;
  const AttentionArgs& args = all.args;
  const int64_t q_sizes[4] = {args.batch, args.heads, args.seq_q, args.head_dim};
  const int64_t kv_sizes[4] = {args.batch, args.heads_kv, args.seq_k, args.head_dim};
  constexpr bool bf16 = std::is_same_v<T, __nv_bfloat16>;
  constexpr auto kernel = attention_scheduled<T, Panels, 2, false, Items>;
  const int64_t copies = part_copies(args);
  for (int64_t p = 0; p < all.part_count; ++p) {
    const AttentionPart& part = all.parts[p];
    CUtensorMap q_map, k_map, v_map;
    if (const char* why = make_ordered_map(&q_map, bf16, args.q, q_sizes, args.q_stride, part.q_modulus)) return why;
    if (const char* why = make_ordered_map(&k_map, bf16, args.k, kv_sizes, args.k_stride, part.k_modulus)) return why;
    if (const char* why = make_ordered_map(&v_map, bf16, args.v, kv_sizes, args.v_stride, part.k_modulus)) return why;
    Items work{};
    work.items = reinterpret_cast<const int4*>(all.items) + 2 * part.items;
    work.joins = reinterpret_cast<const int4*>(all.items) + 2 * part.joins;
    work.schedule = reinterpret_cast<const int4*>(args.schedule);
    work.slots = all.workspace;
    work.lse = all.part_count > 1 ? all.workspace + part_slots_floats(all) : nullptr;
    for (int i = 0; i < 3; ++i) work.out_stride[i] = all.out_stride[i];
    work.long_count = int(part.long_count);
    work.rest_count = int(part.item_count - part.long_count);
    work.join_count = int(part.join_count);
    work.slot_count = int(part.slots);
    work.mask_heads = args.mask_stride_h ? args.heads : 1;
    work.copy_heads = args.heads / work.mask_heads;
    work.q_modulus = int(part.q_modulus);
    work.q_length = args.seq_q / work.q_modulus;
    work.later = p > 0;
    work.more = p + 1 < all.part_count;
    const int bytes = S::shared_bytes(2 * int(part.longest));
    if (const char* why = allow_shared_up_to<kernel>(bytes)) return why;
    const int64_t grid = part.item_count * copies, joins = 2 * part.join_count * copies;
    if (grid > INT32_MAX || part.slots * copies > INT32_MAX) return "unsupported: more than 2^31 blocks";
    if (grid) kernel<<<unsigned(grid), 256, bytes, stream>>>(q_map, k_map, v_map, args, work);
    if (const char* why = launch_error()) return why;
    if (joins) attention_scheduled_join<T, Panels><<<unsigned(joins), 128, 0, stream>>>(args, work);
    if (const char* why = launch_error()) return why;
  }
  return nullptr;
}

template <typename T> const char* with_panels(const AttentionPartsArgs& all, cudaStream_t stream) {
  return all.args.head_dim <= 64 ? launch<T, 1>(all, stream) : launch<T, 2>(all, stream);
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionArgs* args, void* stream) {
  if (args->head_dim > 128) return "unsupported: head_dim above 128 (v3_hopper takes it)";
  if (args->bias || !(args->scale > 0)) return "unsupported: a bias, or a scale that is not positive (v3_hopper takes them)";
  if (args->dtype == FS_FLOAT32) return "unsupported: float32 (the tensor cores take float16 and bfloat16; use v1_rowwise)";
  // The binding keeps AttentionArgs as the first member of what it gives to every kernel.
  const AttentionPartsArgs& all = *reinterpret_cast<const AttentionPartsArgs*>(args);
  if (!all.part_count) return "unsupported: no parts (attention() makes them of the mask)";
  return args->dtype == FS_FLOAT16 ? with_panels<__half>(all, static_cast<cudaStream_t>(stream))
                                   : with_panels<__nv_bfloat16>(all, static_cast<cudaStream_t>(stream));
}
