// Hopper, a mask in parts and items of work: blocks that stay, a warp that loads ahead, rows in order of residues, long lists in pieces.
// archs: sm_90a
// expects: HGMMA UTMALDG
//
// One block stays on each multiprocessor and its teams walk through their own items (hopper_items.cuh): two neighbouring query tiles and
// steps of two KV tiles that either of them needs. A dilated mask is a sliding window inside each residue class, a strided one a window
// and, in order of residues, a triangle: TMA fetches 64 rows of such an order as one box, and results go to the rows' own places, so
// nothing is copied. A list that would keep one team busy while others are done is cut; its pieces leave sums and contexts in fp32, which a
// second kernel joins in their order. Where parts follow one another, rows are merged by log-sum-exp with what is already there.
// Everything happens in a fixed order, so that results repeat bit for bit.
#include "hopper_parts.cuh"

FUSESCOPE_KERNEL(const AttentionArgs* args, void* stream) { return take_parts<false>(args, stream); }
