"""K and V without what lies at keys that no query sees, such as uninitialised padding."""

from __future__ import annotations

from fusescope.ops.attention.plan import tiles
from fusescope.ops.attention.plan.plan_cache import PlanCache

_PIECE = 1 << 14  # tiles or bitmaps looked at together: temporaries of 8 MiB and of 64 MiB


def clear(k, v, plan):
    """(k, v) with zeros at keys that no query row of the plan sees; the same tensors where every key is seen.

    k, v: (B, H_kv, S_k, D), any floating-point dtype and strides, on the plan's device. Query heads that
    share a KV head share its keys: one is cleared that none of them sees. Copies k and v: moves 4 B H_kv S_k
    D elements (each is read and written) and holds 2 B H_kv S_k D more. Which keys are seen is found once for
    a plan, by reading a flag back: RuntimeError where that would be under CUDA graph capture.
    """
    import torch

    if k.is_cuda and torch.cuda.is_current_stream_capturing() and not _seen.made(plan):
        raise RuntimeError(
            "under CUDA graph capture the padding of a plan must be known: "
            "call attention(..., clear_padding=True) with this plan once before"
        )
    seen = _seen.of(plan)
    if seen is None:
        return k, v
    if plan.heads > 1:
        seen = seen.view(plan.batch, k.shape[1], -1, plan.seq_k).any(2)
    unseen = ~seen[..., None]
    return k.masked_fill(unseen, 0), v.masked_fill(unseen, 0)


def _find(plan):
    """Bool (batch or 1, heads or 1, seq_k) on the plan's device: whether any row sees the key; None where
    every key is seen."""
    import torch

    if plan.is_full:
        return None
    q_tiles, k_tiles = -(-plan.seq_q // tiles.TILE), -(-plan.seq_k // tiles.TILE)
    masks, device = plan.batch * plan.heads, plan.device
    lengths = (plan.row_ptr[1:] - plan.row_ptr[:-1]).long()
    mask = torch.arange(masks, device=device).repeat_interleave(q_tiles).repeat_interleave(lengths)
    of_bitmap = [tiles.unpack(some).any(1) for some in plan.bitmaps.split(_PIECE)]
    of_bitmap.append(torch.ones(1, tiles.TILE, dtype=torch.bool, device=device))  # number −1: a full tile
    of_bitmap = torch.cat(of_bitmap)
    # Tiles of one column with one code say the same: each pair is looked at once.
    column = mask * k_tiles + plan.tile_index.long()
    pairs = torch.unique(column * len(of_bitmap) + plan.tile_code.long() % len(of_bitmap))
    seen = torch.zeros(masks * k_tiles, tiles.TILE, dtype=torch.int32, device=device)
    for some in pairs.split(_PIECE):
        seen.index_add_(0, some // len(of_bitmap), of_bitmap[some % len(of_bitmap)].int())
    seen = seen.view(masks, -1)[:, : plan.seq_k] > 0
    return None if bool(seen.all()) else seen.view(plan.batch, plan.heads, plan.seq_k)


_seen = PlanCache(_find)
