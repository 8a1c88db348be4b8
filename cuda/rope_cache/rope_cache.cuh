// Rotary positions on q and k, and the write of k and v into a KV cache.
//
//   q (B, S, H, D)   k, v (B, S, H_kv, D)   out: q turned, (B, S, H, D), dense
//   cos_sin: rows of R elements in fp32, R / 2 cosines, then R / 2 sines; R <= D and even. Of a head x, with c and s
//   the row of its token, the halves of the first R elements turn against each other and the others stay:
//     y[i] = x[i] c[i] - x[i + R/2] s[i],   y[i + R/2] = x[i + R/2] c[i] + x[i] s[i]
//   k_cache, v_cache: (pages, H_kv, page, D). Place p of sequence b is row p % page of page block_table[b, p / page];
//   without a table a sequence is one page: page b.
//
// A place outside the cache, and a page that does not exist, is not written: for k and v of that token nothing happens.
// A token whose position has no row in cos_sin gets NaN in the place of what would be turned.
// Caches of e4m3 (kE4m3Cache in dtype): of k, turned in fp32, and v the quotient by the scale of the head, rounded
// once, to nearest even; beyond the largest number the largest, NaN stays NaN.
#pragma once
#include "../common/e4m3.h"
#include "../common/interface.h"

// One number per token: that of token (b, s) is data[b * row + s * column] + s * rise. A first position for each
// sequence is column = 0 and rise = 1.
struct TokenNumbers {
  const void* data;
  int64_t row, column, rise;
  int32_t wide;  // int64 (1) or int32 (0)
};

struct RopeOperand {
  const void* data;
  int64_t batch, token, head;  // strides in elements; the D elements of a head are contiguous
};

struct RopeCacheStrides {
  int64_t page, head, row;  // in elements; the D elements of a row are contiguous
};

struct RopeCacheArgs {
  RopeOperand q, k, v;
  const float* cos_sin;        // nullptr: nothing is turned and out is not written
  TokenNumbers positions;      // the row of cos_sin, where by_token is 0
  TokenNumbers places;         // in the cache
  const int32_t* block_table;  // (B, table_columns), or nullptr
  void* out;
  void* k_cache;
  void* v_cache;
  RopeCacheStrides k_stride, v_stride;
  int64_t cos_sin_rows;   // rows of cos_sin; by_token: B * S of them
  int64_t table_row;      // distance between rows of block_table
  int64_t table_columns;  // pages that a sequence may have; 1 without a table
  int64_t pages;          // in the cache; B without a table
  int64_t page;           // rows of a page
  int64_t batch, tokens;  // B, S >= 1
  int32_t heads, kv_heads, head_dim;
  int32_t rotary;    // R; 0 without cos_sin
  int32_t by_token;  // 1: row b * S + s of cos_sin belongs to token (b, s)
  int32_t dtype;     // FusescopeDtype of q, k, v, out and the caches; with kE4m3Cache the caches are e4m3
};

// Apart from the above, so that kernels of other caches keep their arguments.
struct RopeCacheScales {
  const float* k;  // (H_kv,)
  const float* v;
};

// What the binding passes: a kernel that takes caches of e4m3 finds their scales behind its arguments.
struct RopeCacheCall {
  RopeCacheArgs args;
  RopeCacheScales scales;
};

inline RopeCacheScales scales_of(const RopeCacheArgs& args) {
  return reinterpret_cast<const RopeCacheCall&>(args).scales;
}

#ifdef __CUDACC__
#define ROPE_CACHE_BOTH __host__ __device__
#else
#define ROPE_CACHE_BOTH
#endif

ROPE_CACHE_BOTH inline int64_t number_of(const TokenNumbers& numbers, int64_t b, int64_t s) {
  const int64_t at = b * numbers.row + s * numbers.column;
  const int64_t value =
      numbers.wide ? static_cast<const int64_t*>(numbers.data)[at] : static_cast<const int32_t*>(numbers.data)[at];
  return value + s * numbers.rise;
}

// The row of cos_sin for token (b, s); -1 where there is none.
ROPE_CACHE_BOTH inline int64_t angle_row(const RopeCacheArgs& args, int64_t b, int64_t s) {
  if (args.by_token) return b * args.tokens + s;
  const int64_t position = number_of(args.positions, b, s);
  return position < 0 || position >= args.cos_sin_rows ? -1 : position;
}

// Where the k and v of token (b, s) belong.
struct CacheRow {
  int64_t page, row;  // page is -1 where it is outside the cache
};

ROPE_CACHE_BOTH inline CacheRow cache_row(const RopeCacheArgs& args, int64_t b, int64_t s) {
  const int64_t place = number_of(args.places, b, s);
  if (place < 0 || place >= args.table_columns * args.page) return {-1, 0};
  if (!args.block_table) return {b, place};
  const int64_t column = place / args.page, page = args.block_table[b * args.table_row + column];
  return {page < 0 || page >= args.pages ? -1 : page, place - column * args.page};
}
