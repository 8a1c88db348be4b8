// A token at a time: its embeddings are added in a buffer that stays in the first-level cache; the norm is three passes
// over that.
#include <memory>

#include "../common/cpu_convert.h"
#include "../common/cpu_norm.h"
#include "embedding_layernorm.cuh"

using namespace fusescope_cpu;

namespace {
void add(const float* more, float* sum, int64_t count) {
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) sum[j] += more[j];
}

// Row `id` of a table put into sum, or added to it.
template <typename T>
void take(const EmbeddingTable& table, int64_t id, bool first, float* sum, float* buffer, int64_t cols) {
  const T* row = static_cast<const T*>(table.rows) + id * table.step;
  if (first) {
    widen(row, sum, cols);
  } else if constexpr (sizeof(T) == 4) {
    add(row, sum, cols);
  } else {
    widen(row, buffer, cols);
    add(buffer, sum, cols);
  }
}

// Whether every token was found in its tables.
template <typename T> bool tokens(const EmbeddingLayernormArgs& args) {
  const int64_t cols = args.cols;
  const Widened<T> weight(args.weight, cols), shift(args.shift, cols);
  bool all = true;
#pragma omp parallel reduction(&& : all) if (args.tokens > 1 && args.tokens * cols > 8192)
  {
    std::unique_ptr<float[]> buffer(new float[2 * cols]);
    float* sum = buffer.get();
#pragma omp for schedule(static)
    for (int64_t t = 0; t < args.tokens; ++t) {
      T* to = static_cast<T*>(args.out) + t * cols;
      bool known = true;
      for (int which = 0; which < 3 && known; ++which) {
        if (!args.table[which].rows) continue;
        const int64_t id = embedding_row(args, which, t);
        known = id >= 0;
        if (known) take<T>(args.table[which], id, which == 0, sum, sum + cols, cols);
      }
      all = all && known;
      if (!known) continue;
      if constexpr (sizeof(T) == 4) {
        normalise(sum, weight.data, shift.data, to, cols, args.eps);
      } else {
        normalise(sum, weight.data, shift.data, sum, cols, args.eps);
        narrow(sum, to, cols);
      }
    }
  }
  return all;
}
}  // namespace

FUSESCOPE_KERNEL(const EmbeddingLayernormArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) -> const char* {
    return tokens<decltype(zero)>(*args) ? nullptr : "an id lies outside its embedding table";
  });
}
