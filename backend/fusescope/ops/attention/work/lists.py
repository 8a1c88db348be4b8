"""The tile lists that work items are cut from: of a mask as a whole, or of the parts that it falls into.

A mask whose file says how (Mask.parts) falls into parts whose rows or keys are in strided-permuted order
(cuda/attention/parts.h).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fusescope.ops.attention.plan import schedule, tile_lists, tiles
from fusescope.ops.attention.plan.plan import Plan

MOST_KEPT = 4  # KV tiles that a worker of warpgroups has room for between items
_NOT_NEEDED = -2  # the code of a tile that a query tile of the pair does not need


@dataclass(frozen=True)
class Lists:
    """A part's lists: moduli of rows and keys, pairs of query tiles, entries int32 (n, 4) and fragments on
    the device; on the host for each list (mask · pairs + pair) its first entry and its steps (int64 (lists,
    2)), needs: how many query tiles need the steps before each entry (int64 (n + 1,)), and overlap: with how
    many KV tiles a list begins with which the list before it ends, or the one behind it (int64 (2,
    lists))."""

    rows: int
    keys: int
    pairs: int
    entries: Any
    fragments: Any
    table: np.ndarray
    needs: np.ndarray
    overlap: np.ndarray


def fits(modulus: int, size: int) -> bool:
    """Whether a box of TMA can take 64 rows in strided-permuted order."""
    if modulus == 1:
        return True
    length = size // modulus
    return (
        1 <= modulus <= size
        and size % modulus == 0
        and (length % tiles.TILE == 0 or tiles.TILE % length == 0)
    )


def whole(plan: Plan) -> Lists:
    if plan.is_full:
        return _every_key(plan)
    return _lists(
        plan.row_ptr,
        plan.tile_index,
        plan.tile_code,
        plan.bitmaps,
        plan.batch * plan.heads,
        plan.seq_q,
        plan.seq_k,
    )


def _every_key(plan: Plan) -> Lists:
    """One list of all tiles that every pair of query tiles takes, and the last one's where that is half a
    pair."""
    import torch

    count, last = -(-plan.seq_k // tiles.TILE), -(-plan.seq_q // tiles.TILE) % 2
    index = torch.arange(count, dtype=torch.int32, device=plan.device).repeat(2 + last)
    row_ptr = torch.arange(3 + last, dtype=torch.int32, device=plan.device) * count
    nothing = torch.zeros(0, tiles.TILE, dtype=torch.int64, device=plan.device)
    one = _lists(row_ptr, index, torch.full_like(index, -1), nothing, 1, (2 + last) * tiles.TILE, plan.seq_k)
    pairs = _pairs(plan.seq_q)
    table = np.repeat(one.table[:1], pairs, 0)
    table[pairs - last :] = one.table[1:]
    table = np.tile(table, (plan.batch * plan.heads, 1))
    return Lists(
        1, 1, pairs, one.entries, one.fragments, table, one.needs, _overlap(one.entries, table, pairs)
    )


def parts(plan: Plan) -> list[Lists]:
    """The lists of the mask's parts; none where it has none, or sizes that do not go into boxes."""
    found = plan.mask.parts(plan.seq_q, plan.seq_k) if plan.mask is not None else ()
    if all(p.rows == p.keys == 1 for p in found) or not all(
        fits(p.rows, plan.seq_q) and fits(p.keys, plan.seq_k) for p in found
    ):
        return []
    made = []
    for p in found:
        lists, live, *_ = tile_lists.of_bound(p.bound, plan.device, (p.rows, p.keys))
        if live or not made:
            masks = p.bound.sequences or 1
            made.append(_lists(*lists, masks, plan.seq_q, plan.seq_k, p.rows, p.keys))
    return made


def _pairs(seq_q: int) -> int:
    return -(-seq_q // (2 * tiles.TILE))


def _lists(
    row_ptr, tile_index, tile_code, bitmaps, masks: int, seq_q: int, seq_k: int, rows: int = 1, keys: int = 1
) -> Lists:
    """Of a plan's lists (attention.cuh), for two neighbouring query tiles together: the tiles that either
    needs, ascending unless another order lets query tiles begin with one that has a key for each of their
    rows."""
    import torch

    device, q_tiles, k_tiles, pairs = (
        row_ptr.device,
        -(-seq_q // tiles.TILE),
        -(-seq_k // tiles.TILE),
        _pairs(seq_q),
    )
    code, bitmaps = schedule.edged(tile_index, tile_code, bitmaps, seq_k)
    row = torch.arange(masks * q_tiles, device=device).repeat_interleave((row_ptr[1:] - row_ptr[:-1]).long())
    pair = row // q_tiles * pairs + row % q_tiles // 2
    cells, where = torch.unique(pair * k_tiles + tile_index.long(), return_inverse=True)
    entries = torch.full((cells.numel(), 4), _NOT_NEEDED, dtype=torch.int32, device=device)
    entries[where, 2 + row % q_tiles % 2] = code
    place, length = cells % k_tiles * tiles.TILE, seq_k // keys  # with one residue all places are smaller
    entries[:, 0], entries[:, 1] = place % length if keys > 1 else place, place // length if keys > 1 else 0
    number = cells // k_tiles
    steps = torch.bincount(number, minlength=masks * pairs)
    entries = entries[_seen_first(entries, number, steps, (bitmaps == 0).any(1))]
    steps = steps.cpu().numpy()
    needs = np.concatenate([[0], np.cumsum((entries[:, 2:] != _NOT_NEEDED).sum(1).cpu().numpy())])
    table = np.stack([np.cumsum(steps) - steps, steps], 1)
    return Lists(
        rows, keys, pairs, entries, schedule.fragments(bitmaps), table, needs, _overlap(entries, table, pairs)
    )


def _seen_first(entries, number, steps, blank):
    """The order of entries, int64 (n,), in which query tiles begin, if possible, with a tile that has a key
    for each of their rows: ascending, descending, or ascending behind one from the middle.

    number: int64 (n,), the list of each entry, ascending; steps: int64 (lists,), how many each has; blank:
    bool, whether the bitmap of a code leaves a row without a key. Such a row has nothing that its weights
    could be relative to, and costs a kernel more time later.
    """
    import torch

    count, place = len(number), torch.arange(len(number), device=number.device)
    needed, code = entries[:, 2:] != _NOT_NEEDED, entries[:, 2:].long()
    waits = torch.cat([blank, blank.new_zeros(1)])[torch.where(code >= 0, code, len(blank))]
    behind = torch.cat([waits, waits.new_zeros(1, 2)])  # of query tiles that need nothing

    def extreme(which, missing, places, of):
        return torch.full((len(steps), *of.shape[1:]), missing, device=of.device).scatter_reduce(
            0, of, places, which
        )

    lists = number[:, None].expand(-1, 2)
    first = extreme("amin", count, torch.where(needed, place[:, None], count), lists)
    last = extreme("amax", -1, torch.where(needed, place[:, None], -1), lists)
    ascending, descending = (behind.gather(0, end % (count + 1)).sum(1) for end in (first, last))
    middle = extreme("amin", count, torch.where((needed & ~waits).all(1), place, count), number)
    key = torch.where((descending < ascending)[number], -place, place)
    neither = (torch.minimum(ascending, descending) > 0) & (middle < count)
    key[middle[neither]] = -count
    return torch.argsort(number * (3 * count) + key)


def _overlap(entries, table, pairs: int):
    """Lists.overlap of these lists: the most tiles, up to MOST_KEPT, that are first here and last
    there, in the same order."""
    places = entries[:, :2].cpu().numpy()
    first, steps = table.T
    pair = np.arange(len(table)) % pairs
    found = np.zeros((2, len(table)), np.int64)
    for side, by in enumerate((-1, 1)):
        here = np.flatnonzero((pair + by >= 0) & (pair + by < pairs))
        for many in range(1, MOST_KEPT + 1):
            here = here[np.minimum(steps[here], steps[here + by]) >= many]
            at, there = np.arange(many), here + by
            same = places[first[here, None] + at] == places[(first + steps)[there, None] - many + at]
            found[side, here[same.all((1, 2))]] = many
    return found


def concatenated(parts: list[Lists]):
    """(schedule, fragments) of several parts in one tensor each."""
    import torch

    entries, base = [], 0
    for part in parts:
        some = part.entries.clone()
        some[:, 2:] += base * (some[:, 2:] >= 0)
        entries.append(some)
        base += part.fragments.shape[0]
    return torch.cat(entries).contiguous(), torch.cat([p.fragments for p in parts]).contiguous()
