// The new token of v4's step: its key and value go into the unit that a warp has loaded, and into the caches.
//
// A row is chunks of eight columns, 16 bytes; a lane has the same chunk of every row that it reads. So its angles are
// read once, and serve the query rows and the key.
#pragma once
#include "../common/eight.cuh"
#include "stream.cuh"

namespace decode {
constexpr int kLogUnitKeys = 4;
static_assert(1 << kLogUnitKeys == kUnitKeys);
constexpr int kSettled = 16;  // a flag of `how`, as those of loads_of()

// nullptr, or why the chunks of these tensors cannot be loaded and stored as they are.
inline const char* refuse_new(const AttentionDecodeArgs& a, const AttentionDecodeNew& n) {
  const auto good = [](const void* p, const int64_t* stride) {
    return aligned(p, 16) && stride[0] % 8 == 0 && stride[1] % 8 == 0;
  };
  const bool vectors = good(a.q, a.q_stride) && good(n.k, n.k_stride) && good(n.v, n.v_stride) &&
                       has_vectors(a.k, a.k_stride, 2) && has_vectors(a.v, a.v_stride, 2) && aligned(n.cos_sin, 16);
  if (!vectors) return "unsupported: a new token in the launch of attention whose rows are no 16-byte vectors";
  return n.rotary % 16 ? "unsupported: a new token in the launch of attention that turns by no multiple of 16 elements"
                       : nullptr;
}

// A number on its way: a conversion to 64 bits would wait for it.
struct NumberOnItsWay {
  int32_t low, high;

  __device__ __forceinline__ void read(const SequenceNumber& from, int b) {
    const auto words = static_cast<const int32_t*>(from.data) + b * from.row * (from.wide ? 2 : 1);
    low = words[0];
    high = from.wide ? words[1] : 0;
  }
  // The number where it lies in 0 ... end - 1, else -1.
  __device__ __forceinline__ int64_t below(int64_t end, bool wide) const {
    const int64_t value = wide ? int64_t(uint64_t(uint32_t(high)) << 32 | uint32_t(low)) : low;
    return value < 0 || value >= end ? -1 : value;
  }
};

// What a lane holds of the new token of one sequence and KV head. Lanes of the lower half warp have chunks of the key,
// those of the upper half of the value.
template <typename T, int Width> struct NewToken {
  static constexpr int chunks = Width / 8, rows_at_once = 32 / chunks;
  NumberOnItsWay position, place_number;
  int key, page;              // of the new token; key -1: it goes nowhere
  int column, rotary;         // of the lane's chunk; turned columns of a head
  float first[8], second[8];  // what the first and the second half of what turns are multiplied by for the chunk
  Eight<T> chunk;             // of the new key, turned, or of the value

  __device__ __forceinline__ void read_numbers(const AttentionDecodeNew& n, int b) {
    place_number.read(n.place, b);
    if (n.rotary && !n.by_token) position.read(n.position, b);
  }

  // Asks for where the token goes, and for the angles. Waits for nothing but the numbers: what is asked for later, the
  // old keys, would be in front of the angles.
  __device__ __forceinline__ void begin(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g,
                                        const AttentionDecodeNew& n, int b) {
    column = threadIdx.x % chunks * 8, rotary = n.rotary;
    key = int(place_number.below(a.seq_max, n.place.wide)), page = b;
    if (g.block_table && key >= 0) page = g.block_table[b * g.table_row + key / g.page];
    if (column >= rotary) return;
    const int64_t row = n.by_token ? b : position.below(n.cos_sin_rows, n.position.wide);
    const int half = rotary / 2, upper = column < half ? 0 : half;
    const float* const angles = n.cos_sin + row * rotary + column - upper;
#pragma unroll
    for (int e = 0; e < 8; e += 4) {
      const float4 none = make_float4(NAN, NAN, NAN, NAN);
      const float4 c = row < 0 ? none : *reinterpret_cast<const float4*>(angles + upper + e);
      const float4 s = row < 0 ? none : *reinterpret_cast<const float4*>(angles + half - upper + e);
      first[e] = c.x, first[e + 1] = c.y, first[e + 2] = c.z, first[e + 3] = c.w;
      second[e] = s.x, second[e + 1] = s.y, second[e + 2] = s.z, second[e + 3] = s.w;
    }
  }

  // The rest of begin(), when its loads are on their way.
  __device__ __forceinline__ void begun(const AttentionDecodeGeneral& g) {
    if (page < 0 || page >= g.pages) key = -1;
#pragma unroll
    for (int e = 0; e < 8; ++e)
      if (column < rotary / 2) second[e] = -second[e];
  }

  // The chunks of a head, as they lie in memory, that turn into this lane's: of the first and the second half. Outside
  // what turns, the first is the chunk. Zeros where not inside.
  struct Pair {
    Eight<T> first, second;
  };
  __device__ __forceinline__ void load(Pair& pair, const T* head, int turned_columns, bool inside) const {
    const int half = turned_columns / 2;
    const T* const from = head + (column >= half && column < turned_columns ? column - half : column);
    load_eight(pair.first.value, from, 1, true, inside);
    load_eight(pair.second.value, from + half, 1, true, inside && column < turned_columns);
  }
  // In fp32, rounded once, by the instructions of rope_cache's v2_vectorised: the product with the second half is
  // rounded, that with the first is not.
  __device__ __forceinline__ Eight<T> turned(const Pair& pair, int turned_columns) const {
    Eight<T> out = pair.first;
#pragma unroll
    for (int e = 0; e < 8; ++e)
      if (column < turned_columns)
        out.value[e] =
            from_float<T>(fmaf(to_float(pair.first.value[e]), first[e], to_float(pair.second.value[e]) * second[e]));
    return out;
  }

  // Reads the key, the value, and `rows` query rows, which go into a unit of 8 Eights rows.
  template <int Eights> __device__ __forceinline__ void load(const AttentionDecodeArgs& a, const AttentionDecodeNew& n,
                                                             int b, int head_kv, int first_row, int rows, char* unit) {
    constexpr int each = 8 * Eights / rows_at_once;
    const int lane = threadIdx.x % 32, own_rotary = lane < 16 ? rotary : 0;
    const bool inside = column < a.head_dim;
    const T* const head = lane < 16 ? static_cast<const T*>(n.k) + b * n.k_stride[0] + head_kv * n.k_stride[1]
                                    : static_cast<const T*>(n.v) + b * n.v_stride[0] + head_kv * n.v_stride[1];
    const T* const query = static_cast<const T*>(a.q) + b * a.q_stride[0] +
                           (head_kv * group_of(a) + first_row + lane / chunks) * a.q_stride[1];
    Pair fresh, queries[each];
#pragma unroll
    for (int i = 0; i < each; ++i)
      load(queries[i], query + i * rows_at_once * a.q_stride[1], rotary,
           inside && lane / chunks + i * rows_at_once < rows);
    load(fresh, head, own_rotary, inside);
#pragma unroll
    for (int i = 0; i < each; ++i)
      *reinterpret_cast<Eight<T>*>(unit + place<Width>(lane / chunks + i * rows_at_once, lane % chunks)) =
          turned(queries[i], rotary);
    chunk = turned(fresh, own_rotary);
    __syncwarp();
  }

  // Into the caches.
  __device__ __forceinline__ void write(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g,
                                        const AttentionDecodeNew& n, int head_kv) const {
    const int lane = threadIdx.x % 32;
    if (key < 0 || lane % 16 >= chunks || column >= a.head_dim) return;
    const int64_t* stride = lane < 16 ? a.k_stride : a.v_stride;
    T* const to = static_cast<T*>(lane < 16 ? n.k_cache : n.v_cache) + page * stride[0] + head_kv * stride[1] +
                  (g.block_table ? key % g.page : key) * stride[2] + column;
    *reinterpret_cast<Eight<T>*>(to) = chunk;
  }

  // Forgets a token that is not among the first `length` keys.
  __device__ __forceinline__ void limit(int length) { key = key < length ? key : -1; }
  __device__ __forceinline__ bool is_in(int unit) const { return key >> kLogUnitKeys == unit; }
  // Over what a loaded unit holds in the place of the new key or value.
  template <bool Values> __device__ __forceinline__ void put(char* unit) const {
    const int lane = threadIdx.x % 32;
    if ((lane >= 16) == Values && lane % 16 < chunks)
      *reinterpret_cast<Eight<T>*>(unit + place<Width>(key % kUnitKeys, lane % 16)) = chunk;
    __syncwarp();
  }
};
}  // namespace decode
