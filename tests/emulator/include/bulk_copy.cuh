// Stands in for cuda/common/bulk_copy.cuh: a late copy arrives when a thread waits for its barrier.
#pragma once
#include "hopper.cuh"

namespace hopper {
inline void load_bytes(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  if (reinterpret_cast<uintptr_t>(to) % 16 || reinterpret_cast<uintptr_t>(from) % 16 || bytes % 16)
    emulator::fail("a bulk copy that is no multiple of 16 bytes");
  auto copy = [=] {
    std::memcpy(to, from, bytes);
    Barrier& b = barriers.at(barrier);
    b.bytes -= long(bytes);
    b.check();
  };
  if (emulator::late_copies && !barriers.at(barrier).waiting)
    barriers.at(barrier).late.push_back(copy);
  else
    copy();
}
}  // namespace hopper
