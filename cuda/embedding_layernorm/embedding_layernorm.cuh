// The sum of up to three embeddings of a token, and its LayerNorm:
//   s = word[word_ids[t]] + position[position_ids[t]] + type[type_ids[t]],  out[t] = (s - mean) / sqrt(var + eps) *
//   weight + shift.
//
// The sum is kept in fp32; mean and variance as in cuda/layernorm. A token with an id outside its table reads nothing
// there: on CUDA its row is NaN, on the CPU the kernel names it as an error.
#pragma once
#include "../common/interface.h"

struct EmbeddingTable {
  const void*
      rows;  // row i begins at rows[i * step]; cols elements lie side by side. nullptr: there is no such embedding
  int64_t step;
  int64_t count;    // rows of the table
  const void* ids;  // one a token, or nullptr: see `implied`
};

struct EmbeddingLayernormArgs {
  EmbeddingTable table[3];  // word, position, type; the word table and its ids are always there
  const void* weight;       // cols elements
  const void* shift;        // cols elements
  void* out;                // tokens x cols elements, dense, never aliasing an input
  int64_t tokens;           // >= 1
  int64_t cols;             // >= 1
  int64_t seq;              // without ids a token's position is its number modulo seq, its type 0
  float eps;
  int32_t dtype;        // FusescopeDtype of tables, weight, shift and out
  int32_t wide_ids[3];  // ids are int64 (1) or int32 (0)
};

// The row of a table for token t; -1 where the id is outside it.
#ifdef __CUDACC__
__host__ __device__
#endif
inline int64_t embedding_row(const EmbeddingLayernormArgs& args, int which, int64_t t) {
  const EmbeddingTable& table = args.table[which];
  int64_t id = which == 1 ? t % args.seq : 0;
  if (table.ids)
    id = args.wide_ids[which] ? static_cast<const int64_t*>(table.ids)[t] : static_cast<const int32_t*>(table.ids)[t];
  return id < 0 || id >= table.count ? -1 : id;
}
