// A block per token, or several where tokens are few: each thread keeps the angles of its 16 bytes of both halves and
// walks over the heads of q, k and v, four of them in flight.
//
// Position, place and heads are loaded at once; the angles wait for the position only, the writes for the place. The
// kernel may start while the product before it ends.
#include "../common/dependent.cuh"
#include "../common/divisor.cuh"
#include "../common/e4m3.cuh"
#include "../common/raw.cuh"
#include "../common/row.cuh"
#include "rope_cache.cuh"

namespace {
constexpr int THREADS = 128, HEADS = 4;  // heads that a thread loads before it writes

// A thread's slot is two packs of a head: of a rotated part the pack and its partner in the other half, of the rest
// (all of v) two neighbours. Packs are `width` elements; slots = half the packs of a head, rounded up.
template <int Width> struct Slot {
  int first, second;  // elements where the packs begin; second is -1 where there is only one
  bool turns;

  __device__ __forceinline__ Slot(int slot, int rotary, int depth) {
    const int pairs = rotary / 2 / Width;
    turns = slot < pairs;
    first = turns ? slot * Width : rotary + 2 * (slot - pairs) * Width;
    second = turns ? first + rotary / 2 : first + Width;
    if (second >= depth) second = -1;
  }
  // This slot or another, by value: a reference to either would put both into local memory.
  __device__ __forceinline__ Slot either(const Slot& other, bool mine) const {
    Slot found = *this;
    found.first = mine ? first : other.first;
    found.second = mine ? second : other.second;
    found.turns = mine ? turns : other.turns;
    return found;
  }
};

// A number_of on its way: a conversion to 64 bits would wait for it.
struct LoadedNumber {
  int32_t low = 0, high = 0;

  __device__ __forceinline__ void read(const TokenNumbers& numbers, int64_t b, int64_t s) {
    const int64_t at = b * numbers.row + s * numbers.column;
    const auto from = static_cast<const int32_t*>(numbers.data) + (numbers.wide ? 2 * at : at);
    low = from[0];
    if (numbers.wide) high = from[1];
  }
  __device__ __forceinline__ int64_t value(const TokenNumbers& numbers, int64_t s) const {
    const int64_t high_word = numbers.wide ? high : low >> 31;
    return int64_t(uint64_t(high_word) << 32 | uint32_t(low)) + s * numbers.rise;
  }
};

// angle_row and cache_row of numbers that are here already.
__device__ __forceinline__ int64_t angle_row_at(const RopeCacheArgs& args, int64_t position) {
  return position < 0 || position >= args.cos_sin_rows ? -1 : position;
}
__device__ __forceinline__ CacheRow cache_row_at(const RopeCacheArgs& args, int64_t b, int64_t place) {
  if (place < 0 || place >= args.table_columns * args.page) return {-1, 0};
  if (!args.block_table) return {b, place};
  const int64_t column = place / args.page, page = args.block_table[b * args.table_row + column];
  return {page < 0 || page >= args.pages ? -1 : page, place - column * args.page};
}

// Two packs of a head as they lie in memory.
template <typename T, int Width> struct LoadedPacks {
  row::Raw<T, Width> first, second;

  template <typename Place> __device__ __forceinline__ void read(const T* from, const Place& slot) {
    first.read(from + slot.first);
    if (slot.second >= 0) second.read(from + slot.second);
  }
};

// The same in fp32, to be turned and written.
template <int Width> struct Packs {
  float first[Width], second[Width];

  template <typename T> __device__ __forceinline__ explicit Packs(const LoadedPacks<T, Width>& loaded) {
#pragma unroll
    for (int e = 0; e < Width; ++e) first[e] = loaded.first[e], second[e] = loaded.second[e];
  }
  template <typename T, typename Place> __device__ __forceinline__ void write(T* to, const Place& slot) const {
    write_pack(to + slot.first, first);
    if (slot.second >= 0) write_pack(to + slot.second, second);
  }
  template <typename T> static __device__ __forceinline__ void write_pack(T* to, const float (&from)[Width]) {
    row::Rounded<T, Width> pack;
#pragma unroll
    for (int e = 0; e < Width; ++e) pack.set(e, from[e]);
    pack.write(to);
  }
  // The same over a scale as e4m3, a byte per element.
  template <typename Place> __device__ __forceinline__ void write(E4m3* to, const Place& slot, float scale) const {
    write_bytes(to + slot.first, first, scale);
    if (slot.second >= 0) write_bytes(to + slot.second, second, scale);
  }
  static __device__ __forceinline__ void write_bytes(E4m3* to, const float (&from)[Width], float scale) {
    struct alignas(Width) Bytes {
      E4m3 value[Width];
    } bytes;
#pragma unroll
    for (int e = 0; e < Width; ++e) bytes.value[e] = to_e4m3(from[e] / scale);
    *reinterpret_cast<Bytes*>(to) = bytes;
  }
  // Which product is rounded is written out: attention_decode's new_token.cuh gives the same bits.
  __device__ __forceinline__ void turn(const float* cosine, const float* sine) {
#pragma unroll
    for (int e = 0; e < Width; ++e) {
      const float a = first[e], b = second[e];
      first[e] = fmaf(a, cosine[e], -(b * sine[e]));
      second[e] = fmaf(a, sine[e], b * cosine[e]);
    }
  }
};

// The cosines and, `half` behind them, sines of a pack; NaN where a position has none.
template <bool Wide, int Width> __device__ __forceinline__ void read_angles(const float* from, int half, bool known,
                                                                            float (&cosine)[Width],
                                                                            float (&sine)[Width]) {
  constexpr int read = Wide ? 4 : 1;  // of fp32 in one access
#pragma unroll
  for (int e = 0; e < Width; e += read) {
    row::Raw<float, read> c, d;
    if (known) c.read(from + e), d.read(from + half + e);
#pragma unroll
    for (int i = 0; i < read; ++i) cosine[e + i] = known ? c[i] : NAN, sine[e + i] = known ? d[i] : NAN;
  }
}

// How tokens and heads are spread: `splits` blocks per token, `groups` heads at a time in each, `slots` threads a head.
struct Spread {
  Divisor tokens, splits, slots;
  int groups;
};

// C: an element of the caches; Scales: RopeCacheScales where that is E4m3, else nothing.
template <typename T, typename C, bool Wide, typename... Scales>
__global__ void __launch_bounds__(THREADS) rope_cache_vectorised(RopeCacheArgs args, Spread spread, Scales... scales) {
  constexpr int width = Wide ? 16 / int(sizeof(T)) : 1;
  const uint32_t token = spread.splits.quotient(blockIdx.x), sequence = spread.tokens.quotient(token);
  const int64_t t = token, b = sequence, s = token - sequence * spread.tokens.value;
  const int group = int(spread.slots.quotient(threadIdx.x)), slot = int(threadIdx.x - group * spread.slots.value);
  const int split = int(blockIdx.x - token * spread.splits.value), depth = args.head_dim;
  const Slot<width> turned(slot, args.rotary, depth), copied(slot, 0, depth);
  // Heads of q, k and v are counted on; those of q where something turns.
  const int keys = args.heads, values = keys + args.kv_heads, end = values + args.kv_heads;
  const int step = spread.groups * int(spread.splits.value);
  wait_for_previous();
  let_next_start();
  if (group >= spread.groups) return;
  const bool by_position = turned.turns && !args.by_token;
  LoadedNumber position, place_number;
  if (by_position) position.read(args.positions, b, s);
  place_number.read(args.places, b, s);

  auto from = [&](int h) {
    const RopeOperand& operand = h < keys ? args.q : (h < values ? args.k : args.v);
    const int64_t head = h < keys ? h : (h < values ? h - keys : h - values);
    return static_cast<const T*>(operand.data) + b * operand.batch + s * operand.token + head * operand.head;
  };
  auto packs = [&](int h) { return turned.either(copied, h < values); };
  LoadedPacks<T, width> loaded[HEADS];
  auto load = [&](int first) {
#pragma unroll
    for (int i = 0; i < HEADS; ++i) {
      const int h = first + i * step;
      if (h < end) loaded[i].read(from(h), packs(h));
    }
  };
  int first = split * spread.groups + group + (args.cos_sin ? 0 : keys);
  load(first);

  float cosine[width], sine[width];
  if (turned.turns) {
    const int64_t row = by_position ? angle_row_at(args, position.value(args.positions, s)) : t;
    read_angles<Wide>(args.cos_sin + row * args.rotary + turned.first, args.rotary / 2, row >= 0, cosine, sine);
  }
  const CacheRow place = cache_row_at(args, b, place_number.value(args.places, s));
  auto turned_query = [&](int h) { return static_cast<T*>(args.out) + (t * args.heads + h) * depth; };
  auto cached = [&](int h) {
    const RopeCacheStrides& stride = h < values ? args.k_stride : args.v_stride;
    return static_cast<C*>(h < values ? args.k_cache : args.v_cache) + place.page * stride.page +
           place.row * stride.row + (h < values ? h - keys : h - values) * stride.head;
  };
  while (first < end) {
#pragma unroll
    for (int i = 0; i < HEADS; ++i) {
      const int h = first + i * step;
      if (h >= end || (h >= keys && place.page < 0)) break;
      Packs<width> value(loaded[i]);
      if (packs(h).turns) value.turn(cosine, sine);
      if constexpr (std::is_same_v<C, E4m3>) {
        if (h < keys)
          value.write(turned_query(h), packs(h));
        else
          value.write(cached(h), packs(h), h < values ? (scales.k, ...)[h - keys] : (scales.v, ...)[h - values]);
      } else {
        value.write(h < keys ? turned_query(h) : cached(h), packs(h));
      }
    }
    first += HEADS * step;
    load(first);
  }
}

// Whether all packs of `width` elements lie at multiples of 16 bytes, those of the caches at multiples of their size.
bool wide_operands(const RopeCacheArgs& a, int width) {
  const int bytes = a.dtype & kE4m3Cache ? width : 16;
  bool fits = a.head_dim % width == 0 && a.rotary / 2 % width == 0 && aligned(a.cos_sin, 16) && aligned(a.out, 16);
  for (const RopeOperand* o : {&a.q, &a.k, &a.v})
    fits = fits && aligned(o->data, 16) && o->batch % width == 0 && o->token % width == 0 && o->head % width == 0;
  for (const RopeCacheStrides* s : {&a.k_stride, &a.v_stride})
    fits = fits && s->page % width == 0 && s->head % width == 0 && s->row % width == 0;
  return fits && aligned(a.k_cache, bytes) && aligned(a.v_cache, bytes);
}

template <typename T, typename C, bool Wide, typename... Scales>
const char* launch(const RopeCacheArgs& args, cudaStream_t stream, const Scales&... scales) {
  constexpr int width = Wide ? 16 / int(sizeof(T)) : 1;
  const int slots = (args.head_dim / width + 1) / 2;
  if (slots > THREADS) return "unsupported: rows that are not 16-byte vectors, of more than 256 elements";
  const int64_t tokens = args.batch * args.tokens;
  if (tokens > INT32_MAX) return "unsupported: more than 2^31 tokens";
  // As many blocks per token as there are heads for, and multiprocessors.
  const int groups = THREADS / slots, most = (args.heads + 2 * args.kv_heads + groups - 1) / groups;
  const int64_t free = multiprocessors() / tokens, splits = free < 1 ? 1 : (free < most ? free : most);
  const Spread spread{Divisor(int32_t(args.tokens)), Divisor(int32_t(splits)), Divisor(slots), groups};
  return launch_dependent(rope_cache_vectorised<T, C, Wide, Scales...>, unsigned(tokens * splits), unsigned(THREADS), 0,
                          stream, 1, args, spread, scales...);
}
}  // namespace

FUSESCOPE_KERNEL(const RopeCacheArgs* args, void* stream) {
  return dispatch(args->dtype & ~kE4m3Cache, [&](auto zero) {
    using T = decltype(zero);
    auto on = static_cast<cudaStream_t>(stream);
    const bool wide = wide_operands(*args, 16 / int(sizeof(T)));
    if (args->dtype & kE4m3Cache) {
      const RopeCacheScales scales = scales_of(*args);
      return wide ? launch<T, E4m3, true>(*args, on, scales) : launch<T, E4m3, false>(*args, on, scales);
    }
    return wide ? launch<T, T, true>(*args, on) : launch<T, T, false>(*args, on);
  });
}
