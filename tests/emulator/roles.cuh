// Stands in for cuda/common/roles.cuh: the same barriers on the emulator's fibers; registers are not counted.
#pragma once
#include "mma.cuh"

namespace hopper {

inline void warpgroup_barrier_of_many(int number) {
  static int arrived[16];
  static unsigned generation[16];
  emulator::barrier(arrived[number], 128, generation[number]);
}
template <int Count> void fewer_registers() {}
template <int Count> void more_registers() {}

}  // namespace hopper
