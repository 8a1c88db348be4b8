// A block per token: each thread keeps the angles of its 16 bytes of both halves and walks over the heads of q, k and
// v, four of them in flight.
//
// The kernel may start while the product before it ends.
#include "../common/dependent.cuh"
#include "../common/e4m3.cuh"
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

// Two packs read in one go and written in another.
template <typename Regs> struct Packs {
  float first[Regs::Width], second[Regs::Width];

  template <typename T, typename Place> __device__ __forceinline__ void read(const T* from, const Place& slot) {
    Regs::read_pack(from + slot.first, first);
    if (slot.second >= 0) Regs::read_pack(from + slot.second, second);
  }
  template <typename T, typename Place> __device__ __forceinline__ void write(T* to, const Place& slot) const {
    Regs::write_pack(to + slot.first, first);
    if (slot.second >= 0) Regs::write_pack(to + slot.second, second);
  }
  // The same over a scale as e4m3, a byte per element.
  template <typename Place> __device__ __forceinline__ void write(E4m3* to, const Place& slot, float scale) const {
    write_bytes(to + slot.first, first, scale);
    if (slot.second >= 0) write_bytes(to + slot.second, second, scale);
  }
  static __device__ __forceinline__ void write_bytes(E4m3* to, const float (&from)[Regs::Width], float scale) {
    struct alignas(Regs::Width) Bytes {
      E4m3 value[Regs::Width];
    } bytes;
#pragma unroll
    for (int e = 0; e < Regs::Width; ++e) bytes.value[e] = to_e4m3(from[e] / scale);
    *reinterpret_cast<Bytes*>(to) = bytes;
  }
  __device__ __forceinline__ void turn(const float* cosine, const float* sine) {
#pragma unroll
    for (int e = 0; e < Regs::Width; ++e) {
      const float a = first[e], b = second[e];
      first[e] = a * cosine[e] - b * sine[e];
      second[e] = b * cosine[e] + a * sine[e];
    }
  }
};

// C: an element of the caches; Scales: RopeCacheScales where that is E4m3, else nothing.
template <typename T, typename C, bool Wide, typename... Scales>
__global__ void __launch_bounds__(THREADS) rope_cache_vectorised(RopeCacheArgs args, int slots, int groups,
                                                                 Scales... scales) {
  constexpr int width = Wide ? 16 / int(sizeof(T)) : 1;
  using Regs = row::Registers<T, 32, width, Wide>;        // for its packs
  using Angles = row::Registers<float, 32, width, Wide>;  // the same elements in fp32
  wait_for_previous();
  let_next_start();
  const int64_t t = blockIdx.x, b = t / args.tokens, s = t - b * args.tokens;
  const int group = int(threadIdx.x) / slots, slot = int(threadIdx.x) - group * slots, depth = args.head_dim;
  if (group >= groups) return;
  const Slot<width> turned(slot, args.rotary, depth), copied(slot, 0, depth);
  float cosine[width], sine[width];
  if (turned.turns) {
    const int64_t row = angle_row(args, b, s);
    const float* from = args.cos_sin + row * args.rotary + turned.first;
    constexpr int step = Wide ? 4 : 1;  // fp32 elements of a read
#pragma unroll
    for (int e = 0; e < width; e += step) {
      if (row < 0) {
#pragma unroll
        for (int i = 0; i < step; ++i) cosine[e + i] = sine[e + i] = NAN;
      } else {
        Angles::read_pack(from + e, cosine + e);
        Angles::read_pack(from + args.rotary / 2 + e, sine + e);
      }
    }
  }
  // Heads of q, k and v are counted on; those of q where something turns, those of k and v where the token has a place.
  const CacheRow place = cache_row(args, b, s);
  const int keys = args.heads, values = keys + args.kv_heads;
  const int end = place.page < 0 ? keys : values + args.kv_heads;
  auto from = [&](int h) {
    const RopeOperand& operand = h < keys ? args.q : (h < values ? args.k : args.v);
    const int64_t head = h < keys ? h : (h < values ? h - keys : h - values);
    return static_cast<const T*>(operand.data) + b * operand.batch + s * operand.token + head * operand.head;
  };
  auto turned_query = [&](int h) { return static_cast<T*>(args.out) + (t * args.heads + h) * depth; };
  auto cached = [&](int h) {
    const RopeCacheStrides& step = h < values ? args.k_stride : args.v_stride;
    return static_cast<C*>(h < values ? args.k_cache : args.v_cache) + place.page * step.page + place.row * step.row +
           (h < values ? h - keys : h - values) * step.head;
  };
  auto packs = [&](int h) { return turned.either(copied, h < values); };
  for (int first = group + (args.cos_sin ? 0 : keys); first < end; first += HEADS * groups) {
    Packs<Regs> value[HEADS];
#pragma unroll
    for (int i = 0; i < HEADS; ++i) {
      const int h = first + i * groups;
      if (h < end) value[i].read(from(h), packs(h));
    }
#pragma unroll
    for (int i = 0; i < HEADS; ++i) {
      const int h = first + i * groups;
      if (h >= end) break;
      if (packs(h).turns) value[i].turn(cosine, sine);
      if constexpr (std::is_same_v<C, E4m3>) {
        if (h < keys)
          value[i].write(turned_query(h), packs(h));
        else
          value[i].write(cached(h), packs(h), h < values ? (scales.k, ...)[h - keys] : (scales.v, ...)[h - values]);
      } else {
        value[i].write(h < keys ? turned_query(h) : cached(h), packs(h));
      }
    }
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
  const int64_t blocks = args.batch * args.tokens;
  if (blocks > INT32_MAX) return "unsupported: more than 2^31 tokens";
  return launch_dependent(rope_cache_vectorised<T, C, Wide, Scales...>, unsigned(blocks), unsigned(THREADS), 0, stream,
                          1, args, slots, THREADS / slots, scales...);
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
