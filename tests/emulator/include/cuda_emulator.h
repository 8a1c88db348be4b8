// Runs CUDA kernels on the CPU, thread by thread, so that their index arithmetic is tested on machines without a GPU.
//
// The threads of a block are fibers of one OS thread; blocks run one after another, those of a cluster at the same
// time. A fiber runs until it waits for others: at a block barrier, or at a warp operation (shuffle, ldmatrix, mma),
// which all active lanes of a warp reach together. So a missing barrier shows as a wrong result, and one that some
// threads never reach is reported as a deadlock. Dynamic shared memory is filled with NaN before each block; what is
// __shared__ otherwise is one for all blocks, so a kernel with clusters has none. Nothing here says how fast a kernel
// is, or whether nvcc accepts it.
//
// EMULATED_SMS: the number of multiprocessors that the device reports (132; at most 63 otherwise).
// EMULATED_COPIES=late: asynchronous copies complete only when a thread waits for them (a kernel that reads too early
// sees old data), else at once (a kernel that overwrites too early destroys data that others still read).
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#pragma GCC push_options
#pragma GCC optimize("O1")

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct __align__(16) float4 {
  float x, y, z, w;
};
struct __align__(16) uint4 {
  unsigned x, y, z, w;
};
struct __align__(8) float2 {
  float x, y;
};
struct __align__(8) uint2 {
  unsigned x, y;
};
struct __align__(8) int2 {
  int x, y;
};
inline int2 make_int2(int x, int y) { return {x, y}; }
struct __align__(16) int4 {
  int x, y, z, w;
};
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

namespace emulator {

constexpr int kMaxThreads = 1024, kMaxCluster = 16, kSharedBytes = 256 << 10;

struct Warp {
  int active = 0, arrived = 0;
  unsigned generation = 0;
  uint32_t slot[2][32][8];  // what each lane contributes to a warp operation: operations take turns
  const void* operands[32][2];
};

struct Block {  // of the cluster that runs
  unsigned index = 0;
  int active = 0, arrived = 0;
  unsigned generation = 0;
  int any = 0;  // of __syncthreads_or
};

struct Fiber {
  jmp_buf registers;
  std::unique_ptr<char[]> stack;
  bool done = false;
  const unsigned* waits_on = nullptr;  // runnable when this is no longer `seen`
  unsigned seen = 0;
  std::vector<std::vector<std::function<void()>>> copies;  // committed groups of asynchronous copies, not yet complete
  std::vector<std::function<void()>> open;                 // copies not yet committed
};

// Thread t of block r of a cluster is number r kMaxThreads + t.
inline Fiber fibers[kMaxCluster * kMaxThreads];
inline Warp warps[kMaxCluster * kMaxThreads / 32];
inline Block blocks[kMaxCluster];
inline int current = 0;
inline jmp_buf scheduler;
inline void (*body)(const void*);  // what a thread runs, given body_of
inline const void* body_of;
alignas(1024) inline unsigned char shared_memory[kMaxCluster][kSharedBytes];
inline unsigned char* dynamic_memory = shared_memory[0];  // that of the running block
inline bool late_copies = false;

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "emulator: %s (block %u, thread %u)\n", what, blockIdx.x, threadIdx.x);
  std::abort();
}

// swapcontext without its two system calls.
[[gnu::noinline]] inline void switch_to(jmp_buf& from, jmp_buf& to) {
  if (!_setjmp(from)) _longjmp(to, 1);
}

inline void wait_for(const unsigned* generation) {
  Fiber& f = fibers[current];
  f.waits_on = generation;
  f.seen = *generation;
  switch_to(f.registers, scheduler);
}

inline void barrier(int& arrived, int active, unsigned& generation) {
  if (++arrived == active) {
    arrived = 0;
    ++generation;
  } else {
    wait_for(&generation);
  }
}

inline int lane() { return current % 32; }
inline Warp& warp() { return warps[current / 32]; }
inline Block& block() { return blocks[current / kMaxThreads]; }
inline void warp_barrier() { barrier(warp().arrived, warp().active, warp().generation); }

// Every lane contributes a value, then reads those of others. Nobody writes these slots again before the operation
// after the next one, which begins once all lanes have read.
template <typename T, typename Read> auto together(const T& value, Read read) {
  Warp& w = warp();
  auto& slot = w.slot[w.generation & 1];
  static_assert(sizeof(T) <= sizeof slot[0]);
  std::memcpy(slot[lane()], &value, sizeof(T));
  warp_barrier();
  return read([&](int from) {
    T other;
    std::memcpy(&other, slot[from], sizeof(T));
    return other;
  });
}

// An operation of a whole warp at once: each lane names two of its own variables, and the last one to come calls
// run(operands of each lane), which reads and writes them where they lie.
template <typename Run> void at_once(const void* first, const void* second, Run run) {
  Warp& w = warp();
  if (w.active != 32) fail("an operation of a whole warp by fewer than 32 lanes");
  w.operands[lane()][0] = first;
  w.operands[lane()][1] = second;
  if (w.arrived + 1 == w.active) run(w.operands);
  warp_barrier();
}

inline void leave() {
  fibers[current].done = true;
  Warp& w = warp();
  --w.active;
  if (w.active && w.arrived == w.active) w.arrived = 0, ++w.generation;
  Block& b = block();
  --b.active;
  if (b.active && b.arrived == b.active) b.arrived = 0, ++b.generation;
}

// A fiber lives for the whole process and runs its thread of one block after another.
inline void enter() {
  for (;;) {
    body(body_of);
    leave();
    switch_to(fibers[current].registers, scheduler);
  }
}

[[gnu::noinline]] inline void start_fiber(Fiber& f) {
  constexpr size_t bytes = 64 << 10;
  f.stack.reset(new char[bytes]);
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = f.stack.get();
  context.uc_stack.ss_size = bytes;
  context.uc_link = nullptr;
  makecontext(&context, enter, 0);
  if (!_setjmp(scheduler)) setcontext(&context);
}

inline void set_up(Block& b, int rank, int threads, size_t dynamic) {
  b.active = threads;
  b.arrived = 0;
  std::memset(shared_memory[rank], 0xff, dynamic);
  for (int t = 0; t < (threads + 31) / 32 * 32; ++t) {
    const int number = rank * kMaxThreads + t;
    if (t % 32 == 0) warps[number / 32].active = warps[number / 32].arrived = 0;
    if (t >= threads) break;
    Fiber& f = fibers[number];
    f.done = false;
    f.waits_on = nullptr;
    f.copies.clear();
    f.open.clear();
    ++warps[number / 32].active;
  }
}

// Runs the thread until it waits or ends; whether it could run.
inline bool run_thread(int rank, int t) {
  Fiber& f = fibers[rank * kMaxThreads + t];
  if (f.done || (f.waits_on && *f.waits_on == f.seen)) return false;
  f.waits_on = nullptr;
  current = rank * kMaxThreads + t;
  threadIdx = {unsigned(t), 0, 0};
  blockIdx = {blocks[rank].index, 0, 0};
  dynamic_memory = shared_memory[rank];
  if (f.stack)
    switch_to(scheduler, f.registers);
  else
    start_fiber(f);
  return true;
}

// Blocks first ... first + count - 1, at the same time.
inline void run_cluster(unsigned first, int count, int threads, size_t dynamic) {
  for (int rank = 0; rank < count; ++rank) {
    blocks[rank].index = first + unsigned(rank);
    set_up(blocks[rank], rank, threads, dynamic);
  }
  for (bool active = true; active;) {
    bool moved = false;
    active = false;
    for (int rank = 0; rank < count; ++rank) {
      if (blocks[rank].active == 0) continue;
      for (int t = 0; t < threads; ++t) moved = run_thread(rank, t) || moved;
      active = active || blocks[rank].active > 0;
    }
    if (active && !moved) fail("deadlock: some threads never reach a barrier that others wait at");
  }
}

inline unsigned cluster_blocks = 1;  // blocks per cluster of the launch

inline void launch_blocks(dim3 grid, dim3 block, size_t dynamic) {
  if (grid.y * grid.z * block.y * block.z != 1) fail("only one-dimensional grids and blocks");
  if (dynamic > kSharedBytes) fail("more dynamic shared memory than is emulated");
  if (block.x > kMaxThreads) fail("more threads than a block may have");
  if (cluster_blocks < 1 || cluster_blocks > kMaxCluster || grid.x % cluster_blocks)
    fail("a grid that is not made of such clusters");
  const char* copies = std::getenv("EMULATED_COPIES");
  late_copies = copies && !std::strcmp(copies, "late");
  gridDim = grid;
  blockDim = block;
  for (unsigned b = 0; b < grid.x; b += cluster_blocks) run_cluster(b, int(cluster_blocks), int(block.x), dynamic);
}

// Little is instantiated for each kernel: compiling is most of what an emulated kernel costs.
template <typename Kernel> void launch(dim3 grid, dim3 block, size_t dynamic, void*, const Kernel& kernel) {
  body = [](const void* given) { (*static_cast<const Kernel*>(given))(); };
  body_of = &kernel;
  launch_blocks(grid, block, dynamic);
}

}  // namespace emulator

inline void __syncthreads() {
  emulator::Block& b = emulator::block();
  emulator::barrier(b.arrived, b.active, b.generation);
}
inline int __syncthreads_or(int predicate) {
  int& any = emulator::block().any;
  if (predicate) any = 1;
  __syncthreads();
  const int found = any;
  __syncthreads();
  any = 0;
  __syncthreads();
  return found;
}
inline void __syncwarp(unsigned = ~0u) { emulator::warp_barrier(); }
inline float __int_as_float(int bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
inline float __fdividef(float a, float b) { return a / b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline int __float_as_int(float x) {
  int bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
template <typename T> T __shfl_xor_sync(unsigned, T v, int distance) {
  return emulator::together(v, [=](auto of) { return of(emulator::lane() ^ distance); });
}
template <typename T> T __shfl_sync(unsigned, T v, int from) {
  return emulator::together(v, [=](auto of) { return of(from % 32); });
}
template <typename T> T __shfl_down_sync(unsigned, T v, int distance) {
  const int from = emulator::lane() + distance < 32 ? emulator::lane() + distance : emulator::lane();
  return emulator::together(v, [=](auto of) { return of(from); });
}

inline unsigned __ballot_sync(unsigned, int mine) {
  return emulator::together(mine, [](auto of) {
    unsigned all = 0;
    for (int i = 0; i < 32; ++i) all |= unsigned(of(i) != 0) << i;
    return all;
  });
}
inline int __reduce_min_sync(unsigned, int mine) {
  return emulator::together(mine, [](auto of) {
    int least = of(0);
    for (int i = 1; i < 32; ++i) least = of(i) < least ? of(i) : least;
    return least;
  });
}
inline int __any_sync(unsigned lanes, int mine) { return __ballot_sync(lanes, mine) != 0; }

inline unsigned __brev(unsigned x) {
  unsigned turned = 0;
  for (int i = 0; i < 32; ++i) turned |= (x >> i & 1) << (31 - i);
  return turned;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline float __uint_as_float(unsigned bits) {
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
// Byte i of the result is that byte of y:x which nibble i of the selector names; nibbles of 8 and above replicate
// signs, which is not emulated.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t both = x | uint64_t(y) << 32;
  unsigned found = 0;
  for (int i = 0; i < 4; ++i) found |= unsigned(both >> (8 * (selector >> 4 * i & 7)) & 255) << 8 * i;
  return found;
}
inline float __expf(float x) { return std::exp(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }

// The part of the runtime that launchers call. Launchers cache what they know of a device, so each number of
// multiprocessors is another device: number 0 has 132.
typedef int cudaError_t;
typedef void* cudaStream_t;
constexpr cudaError_t cudaSuccess = 0, cudaErrorInvalidValue = 1;
enum {
  cudaDevAttrMultiProcessorCount,
  cudaDevAttrMemoryClockRate,
  cudaDevAttrGlobalMemoryBusWidth,
  cudaFuncAttributeMaxDynamicSharedMemorySize
};
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t) { return "error"; }
inline cudaError_t cudaGetDevice(int* device) {
  const char* given = std::getenv("EMULATED_SMS");
  const int count = given ? std::atoi(given) : 0;
  return *device = count > 0 && count < 64 ? count : 0, cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, int attribute, int device) {  // an H100's
  if (attribute == cudaDevAttrMemoryClockRate) return *value = 2619000, cudaSuccess;
  if (attribute == cudaDevAttrGlobalMemoryBusWidth) return *value = 5120, cudaSuccess;
  return *value = device ? device : 132, cudaSuccess;
}
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
template <typename Kernel> cudaError_t cudaFuncSetAttribute(Kernel, int, int bytes) {
  return bytes > 227 << 10 ? cudaErrorInvalidValue : cudaSuccess;  // what a block may have on Hopper
}

#pragma GCC pop_options
