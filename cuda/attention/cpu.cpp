// OpenMP over (batch, head, query tile); live tiles only, as small fp32 matrix products in vector registers.
// takes: score
//
// K is packed once per KV head as tiles of [d][64 keys], so that scores of 64 keys are vector lanes, and V as [key][d].
// In a partial tile, groups of four rows without a live key are skipped, groups with few compute them key by key, and
// the others compute the span of 16-key blocks that is live for them. Rows and keys of a tile may be in
// strided-permuted order (cpu_order.h).
#include <algorithm>
#include <memory>

#include "attention.cuh"
#include "cpu_order.h"
#include "cpu_score.h"
#include "cpu_tiles.h"

using namespace fusescope_cpu;
using namespace cpu_tiles;

namespace {
// Bytes of packed K and V at a time; further heads follow in the next round.
constexpr int64_t kPackLimit = int64_t(256) << 20;

float bias_at(const AttentionArgs& a, int64_t i) {
  if (a.bias_dtype == FS_FLOAT32) return static_cast<const float*>(a.bias)[i];
  if (a.bias_dtype == FS_FLOAT16) return to_float(static_cast<const Half*>(a.bias)[i]);
  return to_float(static_cast<const BFloat16*>(a.bias)[i]);
}

// The kernel for storage type T.
template <typename T> struct Attention {
  const AttentionArgs& a;
  const AttentionScored scored;
  const int head_dim = a.head_dim, width = int(padded(a.head_dim));
  const int q_tiles = (a.seq_q + kTile - 1) / kTile, k_tiles = (a.seq_k + kTile - 1) / kTile;
  const int64_t masks = (a.mask_stride_b ? int64_t(a.batch) * a.mask_stride_b : a.mask_stride_h ? a.heads : 1);
  const StridedOrder order = best_order(a, masks* q_tiles);
  const uint64_t* const bitmaps = order.bitmaps.empty() ? a.bitmaps : order.bitmaps.data();

  // The tiles of several KV heads as fp32.
  struct Packed {
    Buffer keys, rows, values;       // K as [d][64], K and V as [64][width]; rows only where there is a mask
    std::unique_ptr<bool[]> finite;  // of each tile of V
  };

  // The rows of tile t of head h of entry b.
  Rows<T> rows_of(const void* base, const int64_t* stride, int64_t b, int64_t h, int64_t t, int seq) const {
    return {static_cast<const T*>(base) + b * stride[0] + h * stride[1] + t * kTile * stride[2], stride[2], stride[3],
            int(std::min<int64_t>(kTile, seq - t * kTile))};
  }

  // Tile t of a KV head, as tile `at` of those packed.
  void pack(int64_t kv, int64_t t, int64_t at, Packed& to) const {
    const int64_t b = kv / a.heads_kv, h = kv % a.heads_kv, by_row = at * kTile * width;
    const Rows<T> k = rows_of(a.k, a.k_stride, b, h, t, a.seq_k);
    pack_columns(k, order.row_at, head_dim, to.keys.get() + at * kTile * head_dim);
    if (to.rows) pack_rows(k, order.row_at, head_dim, width, 1.f, to.rows.get() + by_row);
    float* const values = to.values.get() + by_row;
    pack_rows(rows_of(a.v, a.v_stride, b, h, t, a.seq_k), order.row_at, head_dim, width, 1.f, values);
    to.finite[at] = all_finite(values, width);
  }

  // Adds the bias to one row of scores and sets masked ones to -inf. word: the row's live keys.
  void mask_row(float* s, uint64_t word, int from, int to, int64_t bias_offset) const {
    if (a.bias && a.bias_dtype == FS_FLOAT32 && a.bias_stride[3] == 1) {
      // Masked keys too, up to the last live one: a loop of vectors.
      const float* bias = static_cast<const float*>(a.bias) + bias_offset;
      const int end = word ? std::min(to, 64 - __builtin_clzll(word)) : from;
      for (int j = from; j < end; ++j) s[j] += bias[j];
    } else if (a.bias) {
      for (int j = from; j < to; ++j)
        if (word >> j & 1) s[j] += bias_at(a, bias_offset + j * a.bias_stride[3]);
    }
    if (word != ~uint64_t(0))
      for (int j = from; j < to; ++j) s[j] = word >> j & 1 ? s[j] : kNone;
  }

  void cap(float* s, int count) const {
    for (int i = 0; i < count; ++i) s[i] = scored.softcap * std::tanh(s[i] / scored.softcap);
  }

  ExpressedRow expressed(const RowPlace& at) const { return {scored, at, a.seq_k - a.seq_q}; }

  // Single keys of a row, collected over tiles until they fill a vector.
  struct KeyList {
    int key[SIZE], count = 0;
  };

  static void express_listed(float* p, const KeyList& listed, const ExpressedRow& row) {
    for (int i = 0; i < listed.count; ++i) p[i] = row(p[i], listed.key[i]);
  }

  // Computes one row against its listed keys and empties the list. K and V as [keys][width]; bias_row: offset of the
  // row's bias.
  void attend_listed(KeyList& listed, const float* q, const float* rows, const float* v, float* o, RowPlace bias_row,
                     float& maximum, float& sum) const {
    alignas(64) float p[SIZE];
    for (int i = 0; i < listed.count; ++i) {
      Block product = {};
      for (int d = 0; d < width; d += SIZE) product += load(q + d) * load(rows + int64_t(listed.key[i]) * width + d);
      p[i] = total(product);
    }
    if (!kExpressed && scored.softcap > 0.f) cap(p, listed.count);
    if constexpr (kExpressed) express_listed(p, listed, expressed(bias_row));
    int count = listed.count;
    if (a.bias || kExpressed) {
      count = 0;
      for (int i = 0; i < listed.count; ++i) {
        const int j = listed.key[i];
        p[count] = a.bias ? p[i] + bias_at(a, bias_row + j * a.bias_stride[3]) : p[i];
        listed.key[count] = j;
        count += p[count] != kNone;  // a bias or an expression of -inf masks its key
      }
    }
    std::fill(p + count, p + SIZE, kNone);  // unused lanes have weight 0
    const float shrink = weigh<exp_negative>(p, SIZE, maximum, sum);
    add_listed_values(p, listed.key, count, v, o, shrink, width);
    listed.count = 0;
  }

  // The query tile t of head (b, h) against all its live tiles; its KV head begins at tile `first` of those packed.
  void tile(int b, int h, int t, const Packed& packed, int64_t first) const {
    const float* const values = packed.values.get() + first * kTile * width;
    const float* const k_rows = packed.rows ? packed.rows.get() + first * kTile * width : nullptr;
    alignas(64) float q[kTile * kWidest], o[kTile * kWidest], s[kRows * kTile];
    float maximum[kTile], sum[kTile];
    KeyList listed[kTile];
    const int rows = std::min(kTile, a.seq_q - t * kTile);
    pack_rows(rows_of(a.q, a.q_stride, b, h, t, a.seq_q), order.row_at, head_dim, width, a.scale, q);
    std::fill_n(o, kTile * width, 0.f);
    // A sink is a key that was there before all others. One of -inf is none, one of NaN makes each row NaN.
    const float sink = scored.sinks ? scored.sinks[h] : kNone;
    std::fill_n(maximum, kTile, std::isnan(sink) ? kNone : sink);
    std::fill_n(sum, kTile, sink == kNone ? 0.f : std::isnan(sink) ? sink : 1.f);

    // Row r, with the offset of its bias; a bias implies modulus 1, as does an expression.
    auto bias_row = [&](int r) {
      return row_place(b * a.bias_stride[0] + h * a.bias_stride[1] + int64_t(t * kTile + r) * a.bias_stride[2], b, h,
                       t * kTile + r);
    };
    auto attend = [&](int r) {
      attend_listed(listed[r], q + r * width, k_rows, values, o + r * width, bias_row(r), maximum[r], sum[r]);
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
        const LiveKeys keys(word);
        if (!keys.blocks) continue;
        if (k_rows && keys.listed(head_dim) < keys.whole(head_dim)) {
          for (int n = 0; n < kRows; ++n)
            for (uint64_t left = word[n]; left; left &= left - 1) {
              KeyList& of_row = listed[r + n];
              of_row.key[of_row.count++] = kt * kTile + __builtin_ctzll(left);
              if (of_row.count == SIZE) attend(r + n);
            }
          continue;
        }
        const int from = keys.first * SIZE, to = from + keys.blocks * SIZE;
        const float* columns = packed.keys.get() + (first + kt) * kTile * head_dim + from;
        with_blocks(keys.blocks, [&](auto blocks) {
          score_blocks<decltype(blocks)::value>(q + r * width, columns, s + from, head_dim, width);
        });
        if constexpr (kExpressed) {
          for (int n = 0; n < kRows; ++n) {
            const ExpressedRow row = expressed(bias_row(r + n));
            for (int j = from; j < to; ++j) s[n * kTile + j] = row(s[n * kTile + j], kt * kTile + j);
          }
        } else {
          for (int n = 0; n < kRows && scored.softcap > 0.f; ++n) cap(s + n * kTile + from, to - from);
        }
        for (int n = 0; n < kRows; ++n)
          mask_row(s + n * kTile, word[n], from, to, bias_row(r + n) + int64_t(kt) * kTile * a.bias_stride[3]);
        attend_tile<exp_negative>(s, from, to, values + int64_t(kt) * kTile * width, packed.finite[first + kt],
                                  o + r * width, maximum + r, sum + r, width);
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
    const int64_t by_row = int64_t(k_tiles) * kTile * width, by_column = int64_t(k_tiles) * kTile * head_dim;
    const int64_t floats = by_column + by_row * (a.row_ptr ? 2 : 1);  // of a KV head
    const int64_t at_once = std::clamp<int64_t>(kPackLimit / (floats * 4), 1, kv_heads);
    Packed packed{buffer(at_once * by_column), a.row_ptr ? buffer(at_once * by_row) : nullptr, buffer(at_once * by_row),
                  std::make_unique<bool[]>(size_t(at_once * k_tiles))};
    if (!packed.keys || !packed.values || (a.row_ptr && !packed.rows))
      return "out of memory for the packed keys and values";
    for (int64_t first = 0; first < kv_heads; first += at_once) {
      const int64_t count = std::min(at_once, kv_heads - first), packs = count * k_tiles,
                    tiles = count * group * q_tiles;
#pragma omp parallel if (tiles > 1)
      {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < packs; ++i) pack(first + i / k_tiles, i % k_tiles, i, packed);
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < tiles; ++i) {
          const int64_t kv = i / (group * q_tiles), head = (first + kv) * group + i / q_tiles % group;
          tile(int(head / a.heads), int(head % a.heads), int(q_tiles - 1 - i % q_tiles), packed, kv * k_tiles);
        }
      }
    }
    return nullptr;
  }
};
}  // namespace

FUSESCOPE_KERNEL(const AttentionArgs* args, void*) {
  if (const char* why = refused_by_expression(*args)) return why;
  const AttentionScored scored = take_scored(*args);
  return dispatch(args->dtype, [&](auto zero) { return Attention<decltype(zero)>{*args, scored}.run(); });
}
