// V as padded fp32 rows once a head; a row's sum stays in vector registers, 64 columns at a time; long rows are taken first.
#include "../common/cpu_block.h"
#include "spmm.cuh"

using namespace fusescope_cpu;
using namespace cpu_block;

namespace {
// out[0 .. Count * SIZE) = sum of values[t] v[columns[t]]; two sums side by side, so that additions need not wait for one another.
template <int Count, typename T>
inline void gather(const T* values, const int32_t* columns, int64_t count, const float* v, int64_t width, float* out) {
  Block even[Count] = {}, odd[Count] = {};
  int64_t t = 0;
  for (; t + 2 <= count; t += 2) {
    const float p = to_float(values[t]), r = to_float(values[t + 1]);
    const float *a = v + columns[t] * width, *b = v + columns[t + 1] * width;
#pragma GCC unroll 4
    for (int i = 0; i < Count; ++i) {
      even[i] += p * load(a + i * SIZE);
      odd[i] += r * load(b + i * SIZE);
    }
  }
  if (t < count) {
    const float p = to_float(values[t]);
    const float* a = v + columns[t] * width;
    for (int i = 0; i < Count; ++i) even[i] += p * load(a + i * SIZE);
  }
  for (int i = 0; i < Count; ++i) store(out + i * SIZE, even[i] + odd[i]);
}

template <typename T>
void spmm_row(const T* values, const int32_t* columns, int64_t count, const float* v, int64_t width, float* sum) {
  for (int64_t d = 0; d < width; d += 4 * SIZE) switch ((width - d) / SIZE) {
      case 1: gather<1>(values, columns, count, v + d, width, sum + d); break;
      case 2: gather<2>(values, columns, count, v + d, width, sum + d); break;
      case 3: gather<3>(values, columns, count, v + d, width, sum + d); break;
      default: gather<4>(values, columns, count, v + d, width, sum + d);
    }
}
}  // namespace

FUSESCOPE_KERNEL(const SpmmArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    const SpmmArgs& a = *args;
    const int64_t width = padded(a.depth), heads = a.outer * a.inner;
    Buffer packed = buffer(a.keys * width);
    if (!packed) return "unsupported: no memory for V as fp32";
#pragma omp parallel if (heads * (a.nnz + a.rows) * a.depth > 32768)
    {
      Buffer sum = buffer(width);
      for (int64_t h = 0; h < heads; ++h) {
        const T* values = static_cast<const T*>(a.values) + h / a.inner * a.values_step[0] + h % a.inner * a.values_step[1];
        const T* v = static_cast<const T*>(a.v) + h / a.inner * a.v_step[0] + h % a.inner * a.v_step[1];
        T* out = static_cast<T*>(a.out) + h * a.rows * a.depth;
#pragma omp for schedule(static)
        for (int64_t j = 0; j < a.keys; ++j) pack_row(v + j * a.v_step[2], packed.get() + j * width, a.depth, width);
#pragma omp for schedule(dynamic, 16)
        for (int64_t i = 0; i < a.rows; ++i) {
          const int64_t r = a.order[i], begin = a.row_offsets[r];
          spmm_row(values + begin, a.columns + begin, a.row_offsets[r + 1] - begin, packed.get(), width, sum.get());
          T* to = out + r * a.depth;
#pragma omp simd
          for (int64_t d = 0; d < a.depth; ++d) to[d] = from_float<T>(sum.get()[d]);
        }
      }
    }
    return nullptr;
  });
}
