// OpenMP over (batch, head, query tile); live tiles only, as small fp32 matrix products in vector registers.
//
// K is packed once a KV head as tiles of [d][64 keys], so that scores of 64 keys are vector lanes, and V as [key][d].
// In a partial tile, groups of four rows without a live key are skipped, groups with few walk them key by key, and the
// others work on the span of 16-key blocks that is live for them. Rows and keys of a tile may be taken in order of
// residues (Fold): where a mask skips keys by a stride, rows and keys of one residue then stand together and the other
// blocks are empty.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "../common/cpu_block.h"
#include "attention.cuh"

using namespace fusescope_cpu;
using namespace cpu_block;

namespace {
constexpr int kTile = ATTENTION_TILE, kRows = 4, kBlock = 16, kBlocks = kTile / kBlock;
constexpr int kSum = 32;  // terms of a score that are summed in a row: sums of short sums round less
constexpr float kLog2e = 1.4426950408889634f;
constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr int64_t kPackLimit = int64_t(256)
                               << 20;  // bytes of packed K and V at once; heads beyond it wait for the next round

// 2^x for x <= 0 or -inf: 2^floor(x) by the exponent bits times a polynomial fitted on the fraction; relative error
// 2e-7.
inline float exp2_fast(float x) {
  const float held = x < -126.f ? -126.f : x;
  const float whole = std::floor(held), f = held - whole - 0.5f;  // f in [-0.5, 0.5): 2^(f + 0.5)
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

// o[r][0 .. 16 Count) = o * shrink[r] + sum over keys j in [from, to) of p[r][j] v[j][...], for kRows rows.
template <int Count>
void context_blocks(const float* p, const float* v, float* o, const float* shrink, int from, int to, int width) {
  Block acc[kRows][Count];
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < Count; ++c) acc[r][c] = load(o + r * width + c * kBlock) * shrink[r];
  for (int j = from; j < to; ++j) {
    Block value[Count];
    for (int c = 0; c < Count; ++c) value[c] = load(v + j * width + c * kBlock);
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < Count; ++c) acc[r][c] += p[r * kTile + j] * value[c];
  }
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < Count; ++c) store(o + r * width + c * kBlock, acc[r][c]);
}

// The same output for one row and the keys listed, o = o * shrink + sum of p[i] v[key[i]].
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

// The order of rows and of keys inside every tile: modulo `fold`, a divisor of 64; with 1 as they are.
struct Fold {
  int fold = 1, row_at[kTile];    // the row (or key) of the tile that stands at a place
  std::vector<uint64_t> bitmaps;  // in that order, where it is not 1

  explicit Fold(int fold = 1) : fold(fold) {
    for (int p = 0; p < kTile; ++p) row_at[p] = p % (kTile / fold) * fold + p / (kTile / fold);
  }
  uint64_t keys(uint64_t word) const {
    if (fold == 1) return word;
    uint64_t turned = 0;
    for (; word; word &= word - 1) {
      const int j = __builtin_ctzll(word);
      turned |= uint64_t(1) << (j % fold * (kTile / fold) + j / fold);
    }
    return turned;
  }
};

// Of a group of kRows rows with these live keys: blocks of the span that is live for any of them, and whether keys one
// by one cost less. In vector operations: a key by itself costs two passes over D / 16 registers, each with a load, and
// a sum across one; a block of 16 keys costs a row 2 D multiply-adds.
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

// The fold that leaves least to do, by some of the partial tiles. A bias is read in the order of keys, so there is none
// with one.
inline Fold fold_of(const AttentionArgs& a, int64_t lists) {
  constexpr int sampled = 16;
  const int64_t tiles = a.row_ptr && !a.bias ? a.row_ptr[lists] : 0;
  std::vector<int64_t> codes;
  for (int64_t i = 0; i < sampled; ++i)
    if (const int64_t at = tiles * i / sampled; at < tiles && a.tile_code[at] >= 0) codes.push_back(a.tile_code[at]);
  int64_t least = 0;
  Fold best;
  for (int fold = 1; fold <= 8; fold *= 2) {
    const Fold tried(fold);
    int64_t cost = 0;
    for (const int64_t code : codes)
      for (int r = 0; r < kTile; r += kRows) {
        uint64_t word[kRows];
        for (int n = 0; n < kRows; ++n) word[n] = tried.keys(a.bitmaps[code * kTile + tried.row_at[r + n]]);
        const Group group(word);
        cost += std::min(group.listed(a.head_dim), group.whole(a.head_dim));
      }
    if (fold == 1 || cost < least) least = cost, best = tried;
  }
  if (best.fold == 1) return best;
  int64_t count = 0;
  for (int64_t i = 0; i < tiles; ++i) count = std::max<int64_t>(count, a.tile_code[i] + 1);
  best.bitmaps.resize(size_t(count) * kTile);
  for (int64_t i = 0; i < count * kTile; ++i)
    best.bitmaps[i] = best.keys(a.bitmaps[i / kTile * kTile + best.row_at[i % kTile]]);
  return best;
}

// One round: the heads [first, last) of all B x H, counted so that those of one KV head are neighbours.
template <typename T> struct Attention {
  const AttentionArgs& a;
  const int head_dim = a.head_dim, width = (a.head_dim + kBlock - 1) / kBlock * kBlock;
  const int q_tiles = (a.seq_q + kTile - 1) / kTile, k_tiles = (a.seq_k + kTile - 1) / kTile;
  const int64_t masks = (a.mask_stride_b ? int64_t(a.batch) * a.mask_stride_b : a.mask_stride_h ? a.heads : 1);
  const Fold fold = fold_of(a, masks* q_tiles);
  const uint64_t* const bitmaps = fold.bitmaps.empty() ? a.bitmaps : fold.bitmaps.data();
  const int64_t k_size = int64_t(k_tiles) * kTile * head_dim, v_size = int64_t(k_tiles) * kTile * width;

  struct Packed {                 // of one KV head, or of one tile of it
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
    for (int place = 0; place < kTile; ++place) {
      const int64_t j = fold.row_at[place];
      if (j >= live) continue;
      if (to.rows)
        for (int d = 0; d < head_dim; ++d)
          to.rows[place * width + d] = to_float(k[j * a.k_stride[2] + d * a.k_stride[3]]);
      for (int d = 0; d < head_dim; ++d) keys[d * kTile + place] = to_float(k[j * a.k_stride[2] + d * a.k_stride[3]]);
      for (int d = 0; d < head_dim; ++d) values[place * width + d] = to_float(v[j * a.v_stride[2] + d * a.v_stride[3]]);
    }
  }

  // Scores of one row that are not live become -inf; bias is added. s is in units of log2, `word` the row's live keys.
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

  // Keys of a row that are taken one by one, over tiles until a vector of scores is full.
  struct Listed {
    int key[kBlock], count = 0;
  };

  // One row against those keys. K and V as [keys][width]; bias_row: where the row's bias begins.
  void take(Listed& listed, const float* q, const float* rows, const float* v, float* o, int64_t bias_row,
            float& maximum, float& sum) const {
    alignas(64) float p[kBlock];
    std::fill_n(p, kBlock, kNone);  // what is not there counts for nothing
    float top = maximum, more = 0.f;
    for (int i = 0; i < listed.count; ++i) {
      const int64_t j = listed.key[i];
      Block acc = {};
      for (int c = 0; c < width; c += kBlock) acc += load(q + c) * load(rows + j * width + c);
      p[i] = total(acc) + (a.bias ? kLog2e * bias_at(a, bias_row + j * a.bias_stride[3]) : 0.f);
      top = p[i] > top ? p[i] : top;
    }
    const float base = top == kNone ? 0.f : top;
#pragma omp simd reduction(+ : more)
    for (int i = 0; i < kBlock; ++i) {
      p[i] = exp2_fast(p[i] - base);
      more += p[i];
    }
    const float shrink = exp2_fast(maximum - base);
    sum = sum * shrink + more;
    maximum = top;
    for (int d = 0; d < width; d += 4 * kBlock) switch (std::min(4, (width - d) / kBlock)) {
        case 1:
          context_listed<1>(p, listed.key, listed.count, v + d, o + d, shrink, width);
          break;
        case 2:
          context_listed<2>(p, listed.key, listed.count, v + d, o + d, shrink, width);
          break;
        case 3:
          context_listed<3>(p, listed.key, listed.count, v + d, o + d, shrink, width);
          break;
        default:
          context_listed<4>(p, listed.key, listed.count, v + d, o + d, shrink, width);
      }
    listed.count = 0;
  }

  // The query tile t of head (b, h) against all its live tiles.
  void tile(int b, int h, int t, const Packed& head) const {
    const float *keys = head.keys, *values = head.values;
    alignas(64) float q[kTile * 256], o[kTile * 256], s[kRows * kTile];
    float maximum[kTile], sum[kTile];
    Listed listed[kTile];
    const int rows = std::min(kTile, a.seq_q - t * kTile);
    const T* from_q =
        static_cast<const T*>(a.q) + b * a.q_stride[0] + h * a.q_stride[1] + int64_t(t) * kTile * a.q_stride[2];
    std::fill_n(q, kTile * width, 0.f);
    for (int r = 0; r < kTile; ++r)
      if (const int64_t row = fold.row_at[r]; row < rows)
        for (int d = 0; d < head_dim; ++d)
          q[r * width + d] = to_float(from_q[row * a.q_stride[2] + d * a.q_stride[3]]) * (a.scale * kLog2e);
    std::fill_n(o, kTile * width, 0.f);
    std::fill_n(maximum, kTile, kNone);
    std::fill_n(sum, kTile, 0.f);

    // Where the bias of the row at place r begins; there is none with a fold.
    auto bias_row = [&](int r) {
      return b * a.bias_stride[0] + h * a.bias_stride[1] + int64_t(t * kTile + r) * a.bias_stride[2];
    };
    auto take_listed = [&](int r) {
      take(listed[r], q + r * width, head.rows, values, o + r * width, bias_row(r), maximum[r], sum[r]);
    };

    const int64_t list = int64_t(b * a.mask_stride_b + h * a.mask_stride_h) * q_tiles + t;
    const int begin = a.row_ptr ? a.row_ptr[list] : 0, end = a.row_ptr ? a.row_ptr[list + 1] : k_tiles;
    for (int i = begin; i < end; ++i) {
      const int kt = a.row_ptr ? a.tile_index[i] : i, code = a.row_ptr ? a.tile_code[i] : -1,
                live = std::min(kTile, a.seq_k - kt * kTile);
      const uint64_t edge = live == kTile ? ~uint64_t(0) : fold.keys((uint64_t(1) << live) - 1);
      for (int r = 0; r < kTile; r += kRows) {
        uint64_t word[kRows] = {};
        for (int n = 0; n < kRows; ++n)
          if (fold.row_at[r + n] < rows) word[n] = edge & (code < 0 ? edge : bitmaps[int64_t(code) * kTile + r + n]);
        const Group group(word);
        if (!group.blocks) continue;
        const int from = group.first * kBlock, to = from + group.blocks * kBlock;
        if (head.rows && group.listed(head_dim) < group.whole(head_dim)) {
          for (int n = 0; n < kRows; ++n)
            for (uint64_t left = word[n]; left; left &= left - 1) {
              Listed& some = listed[r + n];
              some.key[some.count++] = kt * kTile + __builtin_ctzll(left);
              if (some.count == kBlock) take_listed(r + n);
            }
          continue;
        }
        const float* kp = keys + int64_t(kt) * kTile * head_dim + from;
        switch (group.blocks - 1) {
          case 0:
            score_blocks<1>(q + r * width, kp, s + from, head_dim, width);
            break;
          case 1:
            score_blocks<2>(q + r * width, kp, s + from, head_dim, width);
            break;
          case 2:
            score_blocks<3>(q + r * width, kp, s + from, head_dim, width);
            break;
          default:
            score_blocks<4>(q + r * width, kp, s + from, head_dim, width);
        }
        float shrink[kRows];
        for (int n = 0; n < kRows; ++n) {
          float* row = s + n * kTile;
          mask_row(row, word[n], from, to, bias_row(r + n) + int64_t(kt) * kTile * a.bias_stride[3]);
          float top = maximum[r + n], total = 0.f;
#pragma omp simd reduction(max : top)
          for (int j = from; j < to; ++j) top = row[j] > top ? row[j] : top;
          const float base = top == kNone ? 0.f : top;  // -inf minus -inf would be NaN
#pragma omp simd reduction(+ : total)
          for (int j = from; j < to; ++j) {
            row[j] = exp2_fast(row[j] - base);
            total += row[j];
          }
          shrink[n] = exp2_fast(maximum[r + n] - base);
          sum[r + n] = sum[r + n] * shrink[n] + total;
          maximum[r + n] = top;
        }
        const float* vp = values + int64_t(kt) * kTile * width;
        for (int d = 0; d < width; d += 4 * kBlock) {
          float* op = o + r * width + d;
          switch (std::min(4, (width - d) / kBlock)) {
            case 1:
              context_blocks<1>(s, vp + d, op, shrink, from, to, width);
              break;
            case 2:
              context_blocks<2>(s, vp + d, op, shrink, from, to, width);
              break;
            case 3:
              context_blocks<3>(s, vp + d, op, shrink, from, to, width);
              break;
            default:
              context_blocks<4>(s, vp + d, op, shrink, from, to, width);
          }
        }
      }
    }
    for (int r = 0; r < kTile; ++r)
      if (listed[r].count) take_listed(r);
    T* out = static_cast<T*>(a.out) + b * a.out_stride[0] + h * a.out_stride[1] + int64_t(t) * kTile * a.out_stride[2];
    for (int r = 0; r < kTile; ++r) {
      const int64_t row = fold.row_at[r];
      const float inverse = sum[r] == 0.f ? 0.f : 1.f / sum[r];  // a row that saw no key is zeros
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
  if (args->head_dim % 8 || args->head_dim < 32 || args->head_dim > 256)
    return "unsupported: head_dim (a multiple of 8 from 32 to 256 is)";
  return dispatch(args->dtype, [&](auto zero) { return Attention<decltype(zero)>{*args}.run(); });
}
