// cuda/common/cooperative.cuh with a stand-in for the launch: prints what the launcher says where CUDA answers with the
// status that was given.
#include <cuda_emulator.h>

#include <cstdio>
#include <utility>

constexpr cudaError_t cudaErrorCooperativeLaunchTooLarge = 720, cudaErrorNotSupported = 801;
enum { cudaLaunchAttributeCooperative = 2 };
struct cudaLaunchAttribute {
  int id;
  struct {
    int cooperative;
  } val;
};
struct cudaLaunchConfig_t {
  unsigned gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
inline unsigned __float_as_uint(float x) { return unsigned(__float_as_int(x)); }
inline cudaError_t answer = cudaSuccess, pending = cudaSuccess;
inline void cudaMemsetAsync(void*, int, size_t, cudaStream_t) {}
template <typename... Given>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*)(int), Given&&...) {
  const bool asked = config->numAttrs == 1 && config->attrs->id == cudaLaunchAttributeCooperative;
  return pending = asked && config->attrs->val.cooperative && config->gridDim == 132 ? answer : cudaErrorInvalidValue;
}
// As CUDA's own do: the error is read once.
inline cudaError_t last_error() { return std::exchange(pending, cudaSuccess); }
#define cudaGetLastError last_error
#include "common/cooperative.cuh"

int main(int, char** given) {
  answer = std::atoi(given[1]);
  const char* const why = cooperative::launch(+[](int) {}, cooperative::most_blocks(), 32, 0, nullptr, nullptr, 0, 1);
  std::printf("%s\n%d\n", why ? why : "", cudaGetLastError());
}
