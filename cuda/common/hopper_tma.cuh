// Hopper's copies of tiles by tensor maps (TMA), from and to global memory.
#pragma once
#include <cuda.h>

#include "hopper_barrier.cuh"

namespace hopper {
// TMA load of the 64 x 64 box at (column, row, head, batch) of a 4-D tensor map; elements outside the tensor are 0.
__device__ __forceinline__ void load_tile(void* to, const CUtensorMap* map, uint64_t* barrier, int column, int row,
                                          int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}

// The same for a map in strided-permuted order: the tile at (column, index, residue, head, batch).
__device__ __forceinline__ void load_tile(void* to, const CUtensorMap* map, uint64_t* barrier, int column, int index,
                                          int residue, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, "
      "%7}], [%2];" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(shared_address(barrier)), "r"(column), "r"(index), "r"(residue),
      "r"(head), "r"(batch)
      : "memory");
}

// TMA store of a tile to the coordinates of the corresponding load; elements outside the tensor are not written.
// Threads' writes to the tile need fence_async_proxy first (warpgroup.cuh).
__device__ __forceinline__ void store_tile(const void* from, const CUtensorMap* map, int column, int index, int residue,
                                           int head, int batch) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(
                   reinterpret_cast<uint64_t>(map)),
               "r"(shared_address(from)), "r"(column), "r"(index), "r"(residue), "r"(head), "r"(batch)
               : "memory");
}
// Commits this thread's TMA stores as a group.
__device__ __forceinline__ void commit_tma_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until TMA has read all but the last Pending groups of this thread from shared memory.
template <int Pending> __device__ __forceinline__ void await_tma_reads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
// Waits until all of them are in global memory.
__device__ __forceinline__ void await_tma_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<uint64_t>(map)) : "memory");
}
}  // namespace hopper
