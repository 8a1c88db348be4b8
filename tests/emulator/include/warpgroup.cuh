// Stands in for cuda/common/warpgroup.cuh: the same functions on the emulator's fibers.
#pragma once
#include "mma.cuh"

#pragma GCC push_options
#pragma GCC optimize("O1")

namespace hopper {

inline int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }
inline void warpgroup_barrier(int wg) {
  static int arrived[4];
  static unsigned generation[4];
  emulator::barrier(arrived[wg], 128, generation[wg]);
}
inline void warpgroup_barrier_of_three(int wg) { warpgroup_barrier(wg); }
inline void warpgroup_barrier_of_four(int wg) { warpgroup_barrier(wg); }
inline bool warpgroup_any(int wg, bool mine) {
  static bool any[2];
  any[wg] |= mine;
  warpgroup_barrier(wg);
  const bool found = any[wg];
  warpgroup_barrier(wg);
  any[wg] = false;
  return found;
}
inline uint32_t count_up(uint32_t* counter) { return (*counter)++; }
inline void fence_async_proxy() {}

}  // namespace hopper

#pragma GCC pop_options
