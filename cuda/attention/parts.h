// What v5_parts is given beside AttentionArgs: the parts that a mask falls into, and the work of each in items (parts.py makes them).
//
// Parts are disjoint sets of (query, key) pairs whose union is the mask; they run one after another, and each but the first is merged
// with what is already in out. A part may take rows of q or of k in order of residues: with modulus m, place n is row n % L m + n / L
// where L = S / m (m divides S, and one of L and 64 the other). Tiles are tiles of places.
//
// Entries of the schedule (four int32 each; args.schedule, all parts together), two a step:
//   entry 2 s       where the two KV tiles begin: index of the first, of the second, residue of the first, of the second (hopper.cuh,
//                   make_ordered_map)
//   entry 2 s + 1   their codes for the first query tile of a pair, then for the second: -1 all live, else a row of args.fragments
// Items (eight int32), one a block:
//   pair of query tiles, mask, first entry, slot of its partial result or -1 where it finishes its rows,
//   steps, end of the first query tile's steps, begin of the second's, 0
// Joins (eight int32), a list that was cut: pair, mask, first slot, slots, 0, 0, 0, 0
#pragma once
#include "attention.cuh"

struct AttentionPart {
  int64_t q_modulus, k_modulus;
  int64_t items, item_count;  // rows of AttentionPartsArgs::items
  int64_t long_count;         // how many of them, from the first on, are begun before the others of all batch entries and heads
  int64_t joins, join_count;
  int64_t slots;    // partial results of one copy, a (batch entry, head) of every mask
  int64_t longest;  // steps of the longest item
};

struct AttentionPartsArgs {
  AttentionArgs args;          // schedule and fragments are those of the parts; no lists
  const AttentionPart* parts;  // in host memory
  int64_t part_count;
  const int32_t* items;
  float* workspace;       // part_workspace() floats, 16-byte aligned, contents undefined
  int64_t out_stride[3];  // in elements: batch, head, row; columns are neighbours
};

// (Batch entry, head) pairs that share a mask.
inline int64_t part_copies(const AttentionArgs& a) {
  return (a.mask_stride_b ? 1 : int64_t(a.batch)) * (a.mask_stride_h ? 1 : int64_t(a.heads));
}

// Floats of one slot: of both query tiles 128 threads' accumulators, sums and maxima.
inline int64_t part_slot_floats(const AttentionArgs& a) { return 2 * 128 * (32 * ((a.head_dim + 63) / 64) + 4); }

// The slots of the part that has most, then (where there are several parts) the log-sum-exp of every row.
inline int64_t part_slots_floats(const AttentionPartsArgs& a) {
  int64_t most = 0;
  for (int64_t p = 0; p < a.part_count; ++p) most = a.parts[p].slots > most ? a.parts[p].slots : most;
  return most * part_copies(a.args) * part_slot_floats(a.args);
}
inline int64_t part_workspace(const AttentionPartsArgs& a) {
  return part_slots_floats(a) + (a.part_count > 1 ? int64_t(a.args.batch) * a.args.heads * a.args.seq_q : 0);
}
