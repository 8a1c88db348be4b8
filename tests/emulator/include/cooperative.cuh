// Stands in for cuda/common/cooperative.cuh: all blocks of a launch are one cluster, and a thread that waits for a
// value lets the others run.
#pragma once
#include "device.cuh"

namespace cooperative {

template <int Bits, int N> bool is_written(const uint32_t (&word)[N]) {
  for (int i = 0; i < N; ++i) {
    if (word[i] >> (32 - Bits) == (Bits == 32 ? 0xffffffffu : 0xffffu)) return false;
    if (Bits == 16 && (word[i] & 0xffffu) == 0xffffu) return false;
  }
  return true;
}

template <int N> void load_relaxed(uint32_t (&v)[N], const void* from) {
  if (reinterpret_cast<uintptr_t>(from) % sizeof v)
    emulator::fail("a vector with an address that is no multiple of it");
  std::memcpy(v, from, sizeof v);
}

template <typename V> V load(const V* from) { return *from; }

inline unsigned published = 0;                          // values so far
inline unsigned char *begin = nullptr, *end = nullptr;  // of what was filled with ones
// Until another value is published: where none is, the emulator finds the deadlock.
inline void before_retry() { emulator::wait_for(&published); }

template <typename T> void publish(T* to, T v) {
  uint32_t bits = 0;
  std::memcpy(&bits, &v, sizeof v);
  uint32_t before = 0;
  std::memcpy(&before, to, sizeof v);
  const uint32_t ones = sizeof v == 4 ? 0xffffffffu : 0xffffu;
  const auto at = reinterpret_cast<unsigned char*>(to);
  if (at >= begin && at < end && before != ones) emulator::fail("a value that is published twice");
  if (bits == ones) bits = ones >> 1;
  std::memcpy(to, &bits, sizeof v);
  ++published;
}

template <int Threads> void sync_first() {
  static int arrived[emulator::kMaxCluster];
  static unsigned generation[emulator::kMaxCluster];
  const int block = emulator::current / emulator::kMaxThreads;
  emulator::barrier(arrived[block], Threads, generation[block]);
}

inline int most_blocks() { return std::min(multiprocessors(), emulator::kMaxCluster); }

template <typename... Parameters, typename... Given>
const char* launch(void (*kernel)(Parameters...), int blocks, int threads, int shared_bytes, cudaStream_t stream,
                   void* filled, int64_t bytes, Given... given) {
  std::memset(filled, 0xff, size_t(bytes));
  begin = static_cast<unsigned char*>(filled), end = begin + bytes;
  emulator::cluster_blocks = unsigned(blocks);
  emulator::launch(unsigned(blocks), unsigned(threads), size_t(shared_bytes), stream, [&] { kernel(given...); });
  emulator::cluster_blocks = 1;
  return nullptr;
}

}  // namespace cooperative
