// What a kernel on work items is given: the parts of a mask and the work items of each (made by parts.py, items.py).
//
// Parts are disjoint sets of (query, key) pairs whose union is the mask. They run one after another, and each but the
// first is merged (log-sum-exp) with the rows in out. A part may read rows of q or of k in strided-permuted order
// (mod m): position n is row n % L * m + n / L, where L = S / m (m divides S, and one of L and 64 the other). Tiles are
// 64 consecutive positions.
//
// An item is for a group of two or three neighbouring query tiles, as the kernel takes them.
//
// Schedule (args.schedule, all parts together), one entry of four int32 per step:
//   of groups of two: index and residue of the KV tile's first row (hopper_tensor_map.cuh, make_ordered_map); its code
//   for the first and for the second query tile: -1 all live, -2 dead, else a row of args.fragments
//   of groups of three: position of the KV tile's first row; its codes
// Work items, four int32 each, `rounds` rows of `workers` columns. A worker is a warpgroup for each query tile of the
// group and works through one column; the first workers of all blocks come first, then the second ones:
//   group + kItemGroups * reused, or -1 after the column's last item; batch entry * heads + head; first entry of the
//   schedule; steps + kItemSteps * (1 + slot of the partial result), slot -1 where the item is a whole list
//   reused: KV tiles, at most 4, that this item begins with and the item above it ends with, in the same order; none
//   for a piece of a list, which has at least one step
// Pieces, four int32 for each slot: the first slot of its list, how many slots that has, 0, 0
#pragma once
#include "attention.cuh"

constexpr int kItemSteps = 8192;      // more than the steps of an item
constexpr int kItemGroups = 1 << 24;  // more than the groups of query tiles

struct AttentionPart {
  int64_t q_modulus, k_modulus;
  int64_t items, rounds, workers;  // first row of AttentionPartsArgs::items, and how many
  int64_t pieces, slots;           // likewise, one for each partial result
  int64_t heads;                   // over all batch entries
  int64_t tiles;                   // query tiles of a group, the same for all parts
};

struct AttentionPartsArgs {
  AttentionArgs args;          // schedule and fragments of the parts; tile lists and bitmaps of the whole mask
  const AttentionPart* parts;  // in host memory
  int64_t part_count;
  const int32_t* items;
  float* workspace;  // part_workspace() floats, 16-byte aligned, contents undefined: slots, their tickets, log-sum-exps
};

// Floats of a partial result: accumulators, sums and maxima of 128 threads for each query tile.
inline int64_t part_slot_floats(const AttentionPartsArgs& a) {
  return a.part_count ? a.parts->tiles * 128 * (32 * ((a.args.head_dim + 63) / 64) + 4) : 0;
}

// Partial results of the part that has most.
inline int64_t part_slots(const AttentionPartsArgs& a) {
  int64_t most = 0;
  for (int64_t p = 0; p < a.part_count; ++p) most = a.parts[p].slots > most ? a.parts[p].slots : most;
  return most;
}
// Floats of their tickets: 64 bits for each warp of each query tile.
inline int64_t part_ticket_floats(const AttentionPartsArgs& a) {
  return a.part_count ? part_slots(a) * a.parts->tiles * 4 * 2 : 0;
}
// Where there are several parts, the log-sum-exp of every row comes last.
inline int64_t part_workspace(const AttentionPartsArgs& a) {
  return part_slots(a) * part_slot_floats(a) + part_ticket_floats(a) +
         (a.part_count > 1 ? int64_t(a.args.batch) * a.args.heads * a.args.seq_q : 0);
}
