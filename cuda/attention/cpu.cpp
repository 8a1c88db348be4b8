// OpenMP over (batch, head, query tile); live tiles only, as small fp32 matrix products in vector registers.
//
// K is packed once per KV head as tiles of [d][64 keys], so that scores of 64 keys are vector lanes, and V as [key][d].
// In a partial tile, groups of four rows without a live key are skipped, groups with few compute them key by key, and
// the others compute the span of 16-key blocks that is live for them. Rows and keys of a tile may be in
// strided-permuted order (StridedOrder): under strided masks the rows and keys of a residue class are then adjacent and
// other blocks empty.
#include <algorithm>
#include <cmath>
#include <vector>

#include "attention.cuh"
#include "cpu_tiles.h"

using namespace fusescope_cpu;
using namespace cpu_tiles;

namespace {
static_assert(kTile == ATTENTION_TILE);
constexpr int kBlock = SIZE;
constexpr int kSum = 32;  // terms summed at a time: sums of short sums round less
constexpr float kLog2e = 1.4426950408889634f;
constexpr int64_t kPackLimit = int64_t(256)
                               << 20;  // bytes of packed K and V at a time; further heads follow in the next round

// 2^x for x <= 0 or -inf: 2^floor(x) by the exponent bits times a polynomial fitted on the fraction; relative error
// 2e-7.
inline float exp2_fast(float x) {
  const float kept = x < -126.f ? -126.f : x;
  const float whole = std::floor(kept), f = kept - whole - 0.5f;  // f in [-0.5, 0.5): 2^(f + 0.5)
  float p = 2.170225482e-4f;
  p = p * f + 1.895036446e-3f;
  p = p * f + 1.360259754e-2f;
  p = p * f + 7.849350232e-2f;
  p = p * f + 3.397315304e-1f;
  p = p * f + 9.802581791e-1f;
  p = p * f + 1.414213563e+0f;
  const int32_t bits = (int32_t(whole) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, 4);
  return x < -126.f ? 0.f : p * power;
}

// s[r][16 c ...] = sum over d of q[r][d] kt[d][16 c ...] for kRows rows and Count blocks.
template <int Count> void score_blocks(const float* q, const float* kt, float* s, int head_dim, int width) {
  for (int begin = 0; begin < head_dim; begin += kSum) {
    Block acc[kRows][Count] = {};
    const int end = std::min(head_dim, begin + kSum);
    for (int d = begin; d < end; ++d) {
      Block keys[Count];
      for (int c = 0; c < Count; ++c) keys[c] = load(kt + d * kTile + c * kBlock);
      for (int r = 0; r < kRows; ++r)
        for (int c = 0; c < Count; ++c) acc[r][c] += q[r * width + d] * keys[c];
    }
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < Count; ++c) {
        float* to = s + r * kTile + c * kBlock;
        store(to, begin ? load(to) + acc[r][c] : acc[r][c]);
      }
  }
}

// add_values for one row and the keys listed: o = o * shrink + sum of p[i] v[key[i]].
template <int Count>
void context_listed(const float* p, const int* key, int keys, const float* v, float* o, float shrink, int64_t width) {
  Block acc[Count];
  for (int c = 0; c < Count; ++c) acc[c] = load(o + c * kBlock) * shrink;
  for (int i = 0; i < keys; ++i)
    for (int c = 0; c < Count; ++c) acc[c] += p[i] * load(v + key[i] * width + c * kBlock);
  for (int c = 0; c < Count; ++c) store(o + c * kBlock, acc[c]);
}

float bias_at(const AttentionArgs& a, int64_t i) {
  if (a.bias_dtype == FS_FLOAT32) return static_cast<const float*>(a.bias)[i];
  if (a.bias_dtype == FS_FLOAT16) return to_float(static_cast<const Half*>(a.bias)[i]);
  return to_float(static_cast<const BFloat16*>(a.bias)[i]);
}

// The order of rows and keys inside every tile: strided-permuted (mod `modulus`), a divisor of 64; 1: unchanged.
struct StridedOrder {
  int modulus = 1, row_at[kTile];  // the row (or key) of the tile at each position
  std::vector<uint64_t> bitmaps;   // permuted, where modulus is not 1

  explicit StridedOrder(int modulus = 1) : modulus(modulus) {
    for (int p = 0; p < kTile; ++p) row_at[p] = p % (kTile / modulus) * modulus + p / (kTile / modulus);
  }
  uint64_t keys(uint64_t word) const {
    if (modulus == 1) return word;
    uint64_t permuted = 0;
    for (; word; word &= word - 1) {
      const int j = __builtin_ctzll(word);
      permuted |= uint64_t(1) << (j % modulus * (kTile / modulus) + j / modulus);
    }
    return permuted;
  }
};

// The live keys of kRows rows: the span of blocks that is live for any of them, and the cost in vector operations of
// both ways to compute them. A listed key takes two passes over D / 16 registers, each with a load, and a horizontal
// sum; a block of 16 keys takes 2 D multiply-adds per row.
struct Group {
  int first = 0, blocks = 0, keys = 0;

  explicit Group(const uint64_t (&word)[kRows]) {
    uint64_t any = 0;
    for (int n = 0; n < kRows; ++n) any |= word[n], keys += __builtin_popcountll(word[n]);
    if (!any) return;
    first = __builtin_ctzll(any) / kBlock;
    blocks = (63 - __builtin_clzll(any)) / kBlock - first + 1;
  }
  int listed(int head_dim) const { return keys * (head_dim / 4 + 10); }
  int whole(int head_dim) const { return kRows * blocks * 2 * head_dim; }
};

// The modulus of least cost, from a sample of the partial tiles. With a bias it is 1: a bias is read in key order.
inline StridedOrder best_order(const AttentionArgs& a, int64_t lists) {
  constexpr int sampled = 16;
  const int64_t tiles = a.row_ptr && !a.bias ? a.row_ptr[lists] : 0;
  std::vector<int64_t> codes;
  for (int64_t i = 0; i < sampled; ++i)
    if (const int64_t at = tiles * i / sampled; at < tiles && a.tile_code[at] >= 0) codes.push_back(a.tile_code[at]);
  int64_t least = 0;
  StridedOrder best;
  for (int modulus = 1; modulus <= 8; modulus *= 2) {
    const StridedOrder tried(modulus);
    int64_t cost = 0;
    for (const int64_t code : codes)
      for (int r = 0; r < kTile; r += kRows) {
        uint64_t word[kRows];
        for (int n = 0; n < kRows; ++n) word[n] = tried.keys(a.bitmaps[code * kTile + tried.row_at[r + n]]);
        const Group group(word);
        cost += std::min(group.listed(a.head_dim), group.whole(a.head_dim));
      }
    if (modulus == 1 || cost < least) least = cost, best = tried;
  }
  if (best.modulus == 1) return best;
  int64_t count = 0;
  for (int64_t i = 0; i < tiles; ++i) count = std::max<int64_t>(count, a.tile_code[i] + 1);
  best.bitmaps.resize(size_t(count) * kTile);
  for (int64_t i = 0; i < count * kTile; ++i)
    best.bitmaps[i] = best.keys(a.bitmaps[i / kTile * kTile + best.row_at[i % kTile]]);
  return best;
}

// The kernel for storage type T.
template <typename T> struct Attention {
  const AttentionArgs& a;
  const int head_dim = a.head_dim, width = (a.head_dim + kBlock - 1) / kBlock * kBlock;
  const int q_tiles = (a.seq_q + kTile - 1) / kTile, k_tiles = (a.seq_k + kTile - 1) / kTile;
  const int64_t masks = (a.mask_stride_b ? int64_t(a.batch) * a.mask_stride_b : a.mask_stride_h ? a.heads : 1);
  const StridedOrder order = best_order(a, masks* q_tiles);
  const uint64_t* const bitmaps = order.bitmaps.empty() ? a.bitmaps : order.bitmaps.data();
  const int64_t k_size = int64_t(k_tiles) * kTile * head_dim, v_size = int64_t(k_tiles) * kTile * width;

  struct Packed {                 // a KV head, or one tile of it
    float *keys, *rows, *values;  // K as [d][64] a tile; K and V as [64][width]; rows only where there is a mask
  };

  // Tile t of one KV head; zeros beyond S_k and D.
  void pack(int64_t kv, int t, const Packed& to) const {
    float *keys = to.keys, *values = to.values;
    const int b = int(kv / a.heads_kv), h = int(kv % a.heads_kv), live = std::min(kTile, a.seq_k - t * kTile);
    const T* k =
        static_cast<const T*>(a.k) + b * a.k_stride[0] + h * a.k_stride[1] + int64_t(t) * kTile * a.k_stride[2];
    const T* v =
        static_cast<const T*>(a.v) + b * a.v_stride[0] + h * a.v_stride[1] + int64_t(t) * kTile * a.v_stride[2];
    std::fill_n(keys, kTile * head_dim, 0.f);
    std::fill_n(values, kTile * width, 0.f);
    if (to.rows) std::fill_n(to.rows, kTile * width, 0.f);
    for (int position = 0; position < kTile; ++position) {
      const int64_t j = order.row_at[position];
      if (j >= live) continue;
      if (to.rows)
        for (int d = 0; d < head_dim; ++d)
          to.rows[position * width + d] = to_float(k[j * a.k_stride[2] + d * a.k_stride[3]]);
      for (int d = 0; d < head_dim; ++d)
        keys[d * kTile + position] = to_float(k[j * a.k_stride[2] + d * a.k_stride[3]]);
      for (int d = 0; d < head_dim; ++d)
        values[position * width + d] = to_float(v[j * a.v_stride[2] + d * a.v_stride[3]]);
    }
  }

  // Adds the bias to one row of scores and sets dead ones to -inf. s: in units of log2; word: the row's live keys.
  void mask_row(float* s, uint64_t word, int from, int to, int64_t bias_offset) const {
    if (a.bias && a.bias_dtype == FS_FLOAT32 &&
        a.bias_stride[3] == 1) {  // dead keys too, up to the last live one: a loop of vectors
      const float* bias = static_cast<const float*>(a.bias) + bias_offset;
      const int end = word ? std::min(to, 64 - __builtin_clzll(word)) : from;
      for (int j = from; j < end; ++j) s[j] += kLog2e * bias[j];
    } else if (a.bias) {
      for (int j = from; j < to; ++j)
        if (word >> j & 1) s[j] += kLog2e * bias_at(a, bias_offset + j * a.bias_stride[3]);
    }
    if (word != ~uint64_t(0))
      for (int j = from; j < to; ++j) s[j] = word >> j & 1 ? s[j] : kNone;
  }

  // Single keys of a row, collected over tiles until they fill a vector.
  struct KeyList {
    int key[kBlock], count = 0;
  };

  // Computes one row against its listed keys and empties the list. K and V as [keys][width]; bias_row: offset of the
  // row's bias.
  void attend_listed(KeyList& listed, const float* q, const float* rows, const float* v, float* o, int64_t bias_row,
                     float& maximum, float& sum) const {
    alignas(64) float p[kBlock];
    std::fill_n(p, kBlock, kNone);  // unused lanes have weight 0
    for (int i = 0; i < listed.count; ++i) {
      const int64_t j = listed.key[i];
      Block acc = {};
      for (int c = 0; c < width; c += kBlock) acc += load(q + c) * load(rows + j * width + c);
      p[i] = total(acc) + (a.bias ? kLog2e * bias_at(a, bias_row + j * a.bias_stride[3]) : 0.f);
    }
    const float shrink = weigh<exp2_fast>(p, kBlock, maximum, sum);
    over_columns(width, [&](auto blocks, int64_t d) {
      context_listed<decltype(blocks)::value>(p, listed.key, listed.count, v + d, o + d, shrink, width);
    });
    listed.count = 0;
  }

  // The query tile t of head (b, h) against all its live tiles.
  void tile(int b, int h, int t, const Packed& head) const {
    const float *keys = head.keys, *values = head.values;
    alignas(64) float q[kTile * 256], o[kTile * 256], s[kRows * kTile];
    float maximum[kTile], sum[kTile];
    KeyList listed[kTile];
    const int rows = std::min(kTile, a.seq_q - t * kTile);
    const T* from_q =
        static_cast<const T*>(a.q) + b * a.q_stride[0] + h * a.q_stride[1] + int64_t(t) * kTile * a.q_stride[2];
    std::fill_n(q, kTile * width, 0.f);
    for (int r = 0; r < kTile; ++r)
      if (const int64_t row = order.row_at[r]; row < rows)
        for (int d = 0; d < head_dim; ++d)
          q[r * width + d] = to_float(from_q[row * a.q_stride[2] + d * a.q_stride[3]]) * (a.scale * kLog2e);
    std::fill_n(o, kTile * width, 0.f);
    std::fill_n(maximum, kTile, kNone);
    std::fill_n(sum, kTile, 0.f);

    // Offset of the bias of row r; a bias implies modulus 1.
    auto bias_row = [&](int r) {
      return b * a.bias_stride[0] + h * a.bias_stride[1] + int64_t(t * kTile + r) * a.bias_stride[2];
    };
    auto attend = [&](int r) {
      attend_listed(listed[r], q + r * width, head.rows, values, o + r * width, bias_row(r), maximum[r], sum[r]);
    };

    const int64_t list = int64_t(b * a.mask_stride_b + h * a.mask_stride_h) * q_tiles + t;
    const int begin = a.row_ptr ? a.row_ptr[list] : 0, end = a.row_ptr ? a.row_ptr[list + 1] : k_tiles;
    for (int i = begin; i < end; ++i) {
      const int kt = a.row_ptr ? a.tile_index[i] : i, code = a.row_ptr ? a.tile_code[i] : -1,
                live = std::min(kTile, a.seq_k - kt * kTile);
      const uint64_t edge = live == kTile ? ~uint64_t(0) : order.keys((uint64_t(1) << live) - 1);
      for (int r = 0; r < kTile; r += kRows) {
        uint64_t word[kRows] = {};
        for (int n = 0; n < kRows; ++n)
          if (order.row_at[r + n] < rows) word[n] = edge & (code < 0 ? edge : bitmaps[int64_t(code) * kTile + r + n]);
        const Group group(word);
        if (!group.blocks) continue;
        const int from = group.first * kBlock, to = from + group.blocks * kBlock;
        if (head.rows && group.listed(head_dim) < group.whole(head_dim)) {
          for (int n = 0; n < kRows; ++n)
            for (uint64_t left = word[n]; left; left &= left - 1) {
              KeyList& list_of_row = listed[r + n];
              list_of_row.key[list_of_row.count++] = kt * kTile + __builtin_ctzll(left);
              if (list_of_row.count == kBlock) attend(r + n);
            }
          continue;
        }
        const float* kp = keys + int64_t(kt) * kTile * head_dim + from;
        with_blocks(group.blocks, [&](auto blocks) {
          score_blocks<decltype(blocks)::value>(q + r * width, kp, s + from, head_dim, width);
        });
        float shrink[kRows];
        for (int n = 0; n < kRows; ++n) {
          float* row = s + n * kTile;
          mask_row(row, word[n], from, to, bias_row(r + n) + int64_t(kt) * kTile * a.bias_stride[3]);
          shrink[n] = weigh<exp2_fast>(row + from, to - from, maximum[r + n], sum[r + n]);
        }
        const float* vp = values + int64_t(kt) * kTile * width;
        over_columns(width, [&](auto blocks, int64_t d) {
          add_values<decltype(blocks)::value>(s, vp + d, o + r * width + d, shrink, from, to, width);
        });
      }
    }
    for (int r = 0; r < kTile; ++r)
      if (listed[r].count) attend(r);
    T* out = static_cast<T*>(a.out) + b * a.out_stride[0] + h * a.out_stride[1] + int64_t(t) * kTile * a.out_stride[2];
    for (int r = 0; r < kTile; ++r) {
      const int64_t row = order.row_at[r];
      const float inverse = sum[r] == 0.f ? 0.f : 1.f / sum[r];  // rows without a live key are zeros
      for (int d = 0; row < rows && d < head_dim; ++d)
        out[row * a.out_stride[2] + d] = from_float<T>(o[r * width + d] * inverse);
    }
  }

  const char* run() const {
    const int64_t kv_heads = int64_t(a.batch) * a.heads_kv, group = a.heads / a.heads_kv;
    const int64_t row_size = a.row_ptr ? v_size : 0;
    const int64_t at_once = std::clamp<int64_t>(kPackLimit / ((k_size + row_size + v_size) * 4), 1, kv_heads);
    Buffer keys = buffer(at_once * k_size), rows = row_size ? buffer(at_once * row_size) : nullptr,
           values = buffer(at_once * v_size);
    if (!keys || !values || (row_size && !rows)) return "out of memory for the packed keys and values";
    auto packed = [&](int64_t kv, int64_t t) {
      const int64_t at = (kv * k_tiles + t) * kTile;
      return Packed{keys.get() + at * head_dim, row_size ? rows.get() + at * width : nullptr,
                    values.get() + at * width};
    };
    for (int64_t first = 0; first < kv_heads; first += at_once) {
      const int64_t count = std::min(at_once, kv_heads - first), packs = count * k_tiles,
                    tiles = count * group * q_tiles;
#pragma omp parallel if (tiles > 1)
      {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < packs; ++i)
          pack(first + i / k_tiles, int(i % k_tiles), packed(i / k_tiles, i % k_tiles));
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < tiles; ++i) {
          const int64_t kv = i / (group * q_tiles), head = (first + kv) * group + i / q_tiles % group;
          tile(int(head / a.heads), int(head % a.heads), int(q_tiles - 1 - i % q_tiles), packed(kv, 0));
        }
      }
    }
    return nullptr;
  }
};
}  // namespace

FUSESCOPE_KERNEL(const AttentionArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) { return Attention<decltype(zero)>{*args}.run(); });
}
