// What v5_parts is given beside AttentionArgs: the parts that a mask falls into, and the work of each in items
// (parts.py and items.py make them).
//
// Parts are disjoint sets of (query, key) pairs whose union is the mask; they run one after another, and each but the
// first is merged with what is already in out. A part may take rows of q or of k in order of residues: with modulus m,
// place n is row n % L m + n / L where L = S / m (m divides S, and one of L and 64 the other). Tiles are tiles of
// places.
//
// Entries of the schedule (four int32 each; args.schedule, all parts together), a step each:
//   where the KV tile begins: index and residue (hopper.cuh, make_ordered_map); its code for the first query tile of a
//   pair and for the second: -1 all live, -2 not needed, else a row of args.fragments
// Items (four int32): `rounds` rows of one item for each team of warpgroups, which walks through its own column of
// them; first come the first teams of all blocks, then the second ones:
//   pair of query tiles + kItemPairs * kept, or -1 where the team has no more; batch entry * heads + head; first entry;
//   steps + kItemSteps (1 + slot of its partial result), slot -1 where the item finishes its rows
// kept: so many KV tiles, at most 4, are the first of this item and the last, in the same order, of the one before it
// in the column Joins (four int32), a list that was cut: pair, batch entry * heads + head, first slot, slots
#pragma once
#include "attention.cuh"

constexpr int kItemSteps = 8192;     // more than an item has
constexpr int kItemPairs = 1 << 24;  // more pairs of query tiles than there are

struct AttentionPart {
  int64_t q_modulus, k_modulus;
  int64_t items, rounds, teams;  // first row of AttentionPartsArgs::items, and how many
  int64_t joins, join_count;     // likewise
  int64_t slots;                 // partial results
  int64_t heads;                 // of all batch entries that it is for
};

struct AttentionPartsArgs {
  AttentionArgs args;          // schedule and fragments are those of the parts; no lists
  const AttentionPart* parts;  // in host memory
  int64_t part_count;
  const int32_t* items;
  float* workspace;  // part_workspace() floats, 16-byte aligned, contents undefined
};

// Floats of one slot: of both query tiles 128 threads' accumulators, sums and maxima.
inline int64_t part_slot_floats(const AttentionArgs& a) { return 2 * 128 * (32 * ((a.head_dim + 63) / 64) + 4); }

// The slots of the part that has most, then (where there are several parts) the log-sum-exp of every row.
inline int64_t part_slots_floats(const AttentionPartsArgs& a) {
  int64_t most = 0;
  for (int64_t p = 0; p < a.part_count; ++p) most = a.parts[p].slots > most ? a.parts[p].slots : most;
  return most * part_slot_floats(a.args);
}
inline int64_t part_workspace(const AttentionPartsArgs& a) {
  return part_slots_floats(a) + (a.part_count > 1 ? int64_t(a.args.batch) * a.args.heads * a.args.seq_q : 0);
}
