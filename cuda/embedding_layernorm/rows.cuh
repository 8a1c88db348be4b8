// The rows that a token takes from the tables, found by every thread of its group.
#pragma once
#include "embedding_layernorm.cuh"

// row[i]: of table i, or nullptr without that table. False where an id is outside its table.
template <typename T>
__device__ __forceinline__ bool embedding_rows(const EmbeddingLayernormArgs& args, int64_t t, const T* (&row)[3]) {
  bool known = true;
#pragma unroll
  for (int which = 0; which < 3; ++which) {
    row[which] = nullptr;
    if (!args.table[which].rows) continue;
    const int64_t id = embedding_row(args, which, t);
    known = known && id >= 0;
    if (id >= 0) row[which] = static_cast<const T*>(args.table[which].rows) + id * args.table[which].step;
  }
  return known;
}
