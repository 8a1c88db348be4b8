// Stands in for cuda/common/cluster.cuh: what is sent arrives at once, and a barrier is the bytes still to come.
#pragma once
#include "device.cuh"
#include "mma.cuh"

namespace cluster {

inline int arrived = 0;
inline unsigned met = 0;                                               // meetings of all clusters so far
inline unsigned phase[emulator::kMaxCluster * emulator::kMaxThreads];  // at which a thread arrived
inline bool may_send[emulator::kMaxCluster * emulator::kMaxThreads];   // it has waited since

inline void open(uint64_t* received, uint32_t bytes) { *received = bytes; }
inline void arrive() {
  phase[emulator::current] = met;
  may_send[emulator::current] = false;
  if (++arrived == int(emulator::cluster_blocks * blockDim.x)) arrived = 0, ++met;
}
inline void wait() {
  while (met == phase[emulator::current]) emulator::wait_for(&met);
  may_send[emulator::current] = true;
}

template <typename V> V* there(V* p, uint32_t rank) {
  if (rank >= emulator::cluster_blocks) emulator::fail("a block that the cluster does not have");
  return reinterpret_cast<V*>(emulator::shared_memory[rank] +
                              (reinterpret_cast<unsigned char*>(p) - emulator::dynamic_memory));
}

inline unsigned deliveries = 0;

template <typename V> void send(V* to, V v, uint32_t rank, uint64_t* received) {
  if (reinterpret_cast<uintptr_t>(to) % sizeof v) emulator::fail("st.async to an address that is not aligned");
  if (!may_send[emulator::current]) emulator::fail("sent to a block that may not have started");
  if (emulator::blocks[rank].active == 0) emulator::fail("sent to a block that has ended");
  uint64_t& missing = *there(received, rank);
  if (missing < sizeof v) emulator::fail("more bytes than the receiving barrier expects");
  *there(to, rank) = v;
  missing -= sizeof v;
  ++deliveries;
}
inline void await(uint64_t* received) {
  while (*received) emulator::wait_for(&deliveries);
}

// As many as fit a multiprocessor each, so that small devices run none of 16.
template <auto Kernel> int resident(int blocks, int, int) { return multiprocessors() / blocks; }

}  // namespace cluster
