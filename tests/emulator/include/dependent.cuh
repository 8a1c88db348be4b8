// Stands in for cuda/common/dependent.cuh: emulated kernels run one after another.
#pragma once
#include "device.cuh"

inline void wait_for_previous() {}
inline void let_next_start() {}

template <typename... Parameters, typename... Given>
const char* launch_dependent(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, int shared_bytes,
                             cudaStream_t stream, unsigned cluster, Given... given) {
  emulator::cluster_blocks = cluster;
  emulator::launch(blocks, threads, size_t(shared_bytes), stream, [&] { kernel(given...); });
  emulator::cluster_blocks = 1;
  return nullptr;
}
