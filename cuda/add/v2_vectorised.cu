// 16-byte loads and stores, several in flight per thread, grid-stride loop: one pass at memory bandwidth.
#include <type_traits>

#include "../common/device.cuh"
#include "../common/launch.cuh"
#include "add.cuh"

namespace {
template <typename T> struct alignas(16) Pack {
  T value[16 / sizeof(T)];
};

template <typename T>
__global__ void __launch_bounds__(256) add_vectorised(const T* __restrict__ a, const T* __restrict__ b,
                                                      T* __restrict__ out, int64_t n, bool aligned16) {
  constexpr int width = 16 / sizeof(T);
  const int64_t packs = aligned16 ? n / width : 0;  // else element by element, in the loop for the tail
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  const int64_t first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  auto pa = reinterpret_cast<const Pack<T>*>(a);
  auto pb = reinterpret_cast<const Pack<T>*>(b);
  auto po = reinterpret_cast<Pack<T>*>(out);
#pragma unroll 2
  for (int64_t i = first; i < packs; i += step) {
    Pack<T> x = pa[i], y = pb[i], z;
#pragma unroll
    for (int j = 0; j < width; ++j) z.value[j] = from_float<T>(to_float(x.value[j]) + to_float(y.value[j]));
    po[i] = z;
  }
  for (int64_t i = packs * width + first; i < n; i += step) out[i] = from_float<T>(to_float(a[i]) + to_float(b[i]));
}
}  // namespace

FUSESCOPE_KERNEL(const AddArgs* args, void* stream) {
  if (args->n == 0) return nullptr;
  const bool aligned16 = aligned(args->a, 16) && aligned(args->b, 16) && aligned(args->out, 16);
  constexpr int block = 256;
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    int64_t packs = args->n / (16 / int64_t(sizeof(T))) + 1;
    int64_t grid = (packs + block - 1) / block;
    if (grid > 65535) grid = 65535;
    add_vectorised<T><<<unsigned(grid), block, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(args->a), static_cast<const T*>(args->b), static_cast<T*>(args->out), args->n, aligned16);
    return launch_error();
  });
}
