// Hopper, items of work whose results travel by TMA: what an earlier part left comes ahead, results leave behind the next item's work.
// archs: sm_90a
// expects: HGMMA UTMALDG UTMASTG
//
// v5_parts (there: items, teams, orders of rows) with shared memory of their own for results. A tile goes to memory by TMA while the team is
// at its next item, and its queries' place is free as soon as the last scores are there. In a later part the tile that is there already is
// loaded like queries and keys, and merged where it lies. A later part's blocks start, by programmatic dependent launch, on
// multiprocessors that the part before has left, and fetch queries and keys while others finish it.
#include "hopper_parts.cuh"

FUSESCOPE_KERNEL(const AttentionArgs* args, void* stream) { return take_parts<true>(args, stream); }
