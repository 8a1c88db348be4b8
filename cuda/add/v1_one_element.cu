// One thread per element: the simplest correct kernel, the baseline of the ladder.
#include "../common/launch.cuh"
#include "add.cuh"

namespace {
template <typename T>
__global__ void add_one_element(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ out, int64_t n) {
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = from_float<T>(to_float(a[i]) + to_float(b[i]));
}
}  // namespace

FUSESCOPE_KERNEL(const AddArgs* args, void* stream) {
  if (args->n == 0) return nullptr;
  constexpr int block = 256;
  int64_t grid = (args->n + block - 1) / block;
  if (grid > INT32_MAX) return "unsupported: more than 2^31 blocks of 256 elements";
  return dispatch(args->dtype, [&](auto zero) {
    using T = decltype(zero);
    add_one_element<T><<<unsigned(grid), block, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(args->a), static_cast<const T*>(args->b), static_cast<T*>(args->out), args->n);
    return launch_error();
  });
}
