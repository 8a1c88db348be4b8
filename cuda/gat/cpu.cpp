// Right scores of all nodes first, then nodes over the OpenMP threads: scores, softmax, vectorised sum
// of neighbours.
#include <algorithm>
#include <cmath>
#include <vector>

#include "../common/cpu.h"
#include "../common/cpu_exp.h"
#include "gat.cuh"

using namespace fusescope_cpu;

namespace {
template <typename T> float product(const T* a, const T* b, int count) {
  float sum = 0.f;
#pragma omp simd reduction(+ : sum)
  for (int f = 0; f < count; ++f) sum += to_float(a[f]) * to_float(b[f]);
  return sum;
}

// One node and head; e has a score per neighbour.
template <typename T> void node(const GatArgs& a, int64_t i, int64_t h, const float* right, float* e, float* sum) {
  const int64_t begin = a.row_offsets[i], count = a.row_offsets[i + 1] - begin;
  const T* x = static_cast<const T*>(a.x) + h * a.x_step[1];
  const float own = product(static_cast<const T*>(a.left) + h * a.features, x + i * a.x_step[0], a.features);
  float highest = -__builtin_inff();
  for (int64_t t = 0; t < count; ++t) {
    const float s = own + right[a.columns[begin + t] * a.heads + h];
    e[t] = s < 0.f ? s * a.slope : s;
    highest = std::max(highest, e[t]);
  }
  float total = 0.f;
  std::fill_n(sum, a.features, 0.f);
  for (int64_t t = 0; t < count; ++t) {
    const float weight = fast_exp(e[t] - highest);
    const T* neighbour = x + a.columns[begin + t] * a.x_step[0];
    total += weight;
#pragma omp simd
    for (int f = 0; f < a.features; ++f) sum[f] += weight * to_float(neighbour[f]);
  }
  const float shrink = count ? 1.f / total : 0.f;
  T* out = static_cast<T*>(a.out) + (i * a.heads + h) * a.features;
  for (int f = 0; f < a.features; ++f) out[f] = from_float<T>(sum[f] * shrink);
}
}  // namespace

FUSESCOPE_KERNEL(const GatArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    const GatArgs& a = *args;
    std::vector<float> right;
    right.resize(size_t(a.nodes * a.heads));
    int64_t longest = 0;
    for (int64_t i = 0; i < a.nodes; ++i) longest = std::max<int64_t>(longest, a.row_offsets[i + 1] - a.row_offsets[i]);
#pragma omp parallel if (a.nodes * a.heads * a.features > 8192)
    {
      std::vector<float> e, sum;
      e.resize(size_t(longest));
      sum.resize(size_t(a.features));
#pragma omp for schedule(static)
      for (int64_t n = 0; n < a.nodes * a.heads; ++n) {
        const int64_t i = n / a.heads, h = n % a.heads;
        right[n] = product(static_cast<const T*>(a.right) + h * a.features,
                           static_cast<const T*>(a.x) + i * a.x_step[0] + h * a.x_step[1], a.features);
      }
#pragma omp for schedule(dynamic, 16)
      for (int64_t n = 0; n < a.nodes * a.heads; ++n)
        node<T>(a, a.order[n / a.heads], n % a.heads, right.data(), e.data(), sum.data());
    }
    return nullptr;
  });
}
