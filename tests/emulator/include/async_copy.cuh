// Stands in for cuda/common/async_copy.cuh.
#pragma once
#include "mma.cuh"

#pragma GCC push_options
#pragma GCC optimize("O1")

namespace async_copy {

inline void copy16_partial(uint32_t shared, const void* global, int bytes) {
  if (shared % 16 || reinterpret_cast<uintptr_t>(global) % 16)
    emulator::fail("cp.async of 16 bytes with an address that is not a multiple of 16");
  if (bytes < 0 || bytes > 16) emulator::fail("cp.async reads between 0 and 16 bytes");
  auto copy = [=] {
    unsigned char* to = tensor_core::shared_pointer(shared);
    std::memset(to, 0, 16);
    std::memcpy(to, global, size_t(bytes));
  };
  if (emulator::late_copies)
    emulator::fibers[emulator::current].open.push_back(copy);
  else
    copy();
}
inline void copy16(uint32_t shared, const void* global, bool keep = true) {
  copy16_partial(shared, global, keep ? 16 : 0);
}

inline void store16(uint32_t shared, const uint32_t (&word)[4]) {
  std::memcpy(tensor_core::shared_pointer(shared), word, 16);
}

inline void commit() {
  emulator::Fiber& f = emulator::fibers[emulator::current];
  f.copies.push_back(std::move(f.open));
  f.open.clear();
}

template <int Pending> void wait() {
  auto& groups = emulator::fibers[emulator::current].copies;
  while (int(groups.size()) > Pending) {
    for (auto& copy : groups.front()) copy();
    groups.erase(groups.begin());
  }
}

}  // namespace async_copy

#pragma GCC pop_options
