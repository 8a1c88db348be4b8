// Counts that the blocks of a launch share in global memory, which need not be zero before it.
//
// A word holds a 48-bit tag of the call; what holds another tag counts as not yet begun, and the last to come leaves 0.
// So a captured graph, which repeats its tag, finds nothing of its own; calls on other streams have workspaces of their
// own. Scratch that holds the tag of a later call by chance: 2^-48 per word.
#pragma once
#include <atomic>
#include <cstdint>

__device__ __forceinline__ uint64_t swap_if(uint64_t* word, uint64_t expected, uint64_t next) {
#if defined(__CUDA_ARCH__)
  uint64_t old;
  asm volatile("atom.acq_rel.gpu.global.cas.b64 %0, [%1], %2, %3;"
               : "=l"(old)
               : "l"(word), "l"(expected), "l"(next)
               : "memory");
  return old;
#else
  const uint64_t old = *word;  // emulated on a CPU: one thread at a time
  if (old == expected) *word = next;
  return old;
#endif
}
__device__ __forceinline__ uint64_t load_acquired(const uint64_t* word) {
#if defined(__CUDA_ARCH__)
  uint64_t now;
  asm volatile("ld.acquire.gpu.global.b64 %0, [%1];" : "=l"(now) : "l"(word) : "memory");
  return now;
#else
  return *word;
#endif
}
__device__ __forceinline__ uint64_t add_one(uint64_t* word) {
#if defined(__CUDA_ARCH__)
  uint64_t old;
  asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], 1;" : "=l"(old) : "l"(word) : "memory");
  return old;
#else
  return (*word)++;
#endif
}

// A ticket counts the pieces of an item. Whoever will arrive begins it, long before: then arriving is one addition,
// where of many swaps at once one succeeds.

// By one thread of each that will arrive, once. tag: its low 16 bits are 0, the others not all 0.
__device__ __forceinline__ void begin_ticket(uint64_t* ticket, uint64_t tag) {
  const uint64_t seen = *const_cast<volatile uint64_t*>(ticket);
  if ((seen & ~uint64_t(0xffff)) == tag) return;
#if defined(__CUDA_ARCH__)
  // Whether it succeeds or another has begun the ticket meanwhile, the word has the tag now.
  asm volatile(
      "{\n.reg .b64 old;\n"
      "atom.relaxed.gpu.global.cas.b64 old, [%0], %1, %2;\n}" ::"l"(ticket),
      "l"(seen), "l"(tag)
      : "memory");
#else
  *ticket = tag;
#endif
}

// Whether this is the last of `pieces` arrivals, pieces < 2^16. By the thread that has begun the ticket; what the block
// wrote before, ordered by a barrier, can be read by the block of the last to arrive.
__device__ __forceinline__ bool arrives_last(uint64_t* ticket, unsigned pieces) {
#if defined(__CUDA_ARCH__)
  uint64_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], 1;" : "=l"(before) : "l"(ticket) : "memory");
#else
  const uint64_t before = (*ticket)++;
#endif
  if (unsigned(before & 0xffff) + 1 != pieces) return false;
  *ticket = 0;
  return true;
}

// Numbers 0 to all - 1, each drawn once in a launch, by any thread of any block. words: the tag, plus 1 while the first
// to come sets the next number to 0, plus 2 from then on; and the next number. Additions, since of many swaps at once
// one succeeds.
__device__ __forceinline__ uint64_t draw(uint64_t* words, uint64_t tag, uint64_t all) {
  while (true) {
    const uint64_t seen = load_acquired(words);
    if (seen == (tag | 2)) break;
    if (seen == (tag | 1) || swap_if(words, seen, tag | 1) != seen) continue;
    words[1] = 0;
    swap_if(words, tag | 1, tag | 2);
    break;
  }
  const uint64_t drawn = add_one(words + 1);
  if (drawn + 1 == all) swap_if(words, tag | 2, 0);
  return drawn;
}

// A tag that the next 2^48 calls of the process do not repeat, from another number on in each process.
inline uint64_t next_tag() {
  static std::atomic<uint64_t> calls{reinterpret_cast<uintptr_t>(&calls) * 0x9e3779b97f4a7c15ull >> 16};
  uint64_t tag = 0;
  while (tag == 0) tag = ++calls << 16;
  return tag;
}
