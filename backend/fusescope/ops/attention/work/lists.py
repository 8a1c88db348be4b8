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
_NOT_NEEDED = -2  # the code of a tile that a query tile of the group does not need


@dataclass(frozen=True)
class Lists:
    """A part's lists: moduli of rows and keys, query tiles of a group
    (cuda/attention/parts.h), groups, entries int32 (n, 4) and fragments on the device; on the host for each
    list (mask · groups + group) its first entry and its steps (int64 (lists, 2)), needs: how many query tiles
    need the steps before each entry (int64 (n + 1,)), and overlap: with how many KV tiles a list begins with
    which the list before it ends, or the one behind it (int64 (2, lists))."""

    rows: int
    keys: int
    tiles: int
    groups: int
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


def whole(plan: Plan, group: int) -> Lists:
    """The lists of the mask as it is, for groups of so many query tiles."""
    if plan.is_full:
        return _every_key(plan, group)
    return _lists(
        plan.row_ptr,
        plan.tile_index,
        plan.tile_code,
        plan.bitmaps,
        plan.batch * plan.heads,
        plan.seq_q,
        plan.seq_k,
        group,
    )


def _every_key(plan: Plan, group: int) -> Lists:
    """One list of all tiles that every group of query tiles takes, and the last one's where that is part of
    a group."""
    import torch

    count, last = -(-plan.seq_k // tiles.TILE), -(-plan.seq_q // tiles.TILE) % group
    index = torch.arange(count, dtype=torch.int32, device=plan.device).repeat(group + last)
    row_ptr = torch.arange(group + last + 1, dtype=torch.int32, device=plan.device) * count
    nothing = torch.zeros(0, tiles.TILE, dtype=torch.int64, device=plan.device)
    seq_q, codes = (group + last) * tiles.TILE, torch.full_like(index, -1)
    one = _lists(row_ptr, index, codes, nothing, 1, seq_q, plan.seq_k, group)
    groups = _groups(plan.seq_q, group)
    table = np.repeat(one.table[:1], groups, 0)
    table[groups - min(last, 1) :] = one.table[1:]
    table = np.tile(table, (plan.batch * plan.heads, 1))
    overlap = _overlap(one.entries, table, groups, group)
    return Lists(1, 1, group, groups, one.entries, one.fragments, table, one.needs, overlap)


def parts(plan: Plan, group: int) -> list[Lists]:
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
            made.append(_lists(*lists, masks, plan.seq_q, plan.seq_k, group, p.rows, p.keys))
    return made


def _groups(seq_q: int, group: int) -> int:
    return -(-seq_q // (group * tiles.TILE))


def _codes(group: int) -> slice:
    """The words of an entry with the codes for a group's query tiles: what is in front of them says where the
    KV tile is (cuda/attention/parts.h)."""
    return slice(4 - group, 4)


def _lists(
    row_ptr,
    tile_index,
    tile_code,
    bitmaps,
    masks: int,
    seq_q: int,
    seq_k: int,
    group: int,
    rows: int = 1,
    keys: int = 1,
) -> Lists:
    """Of a plan's lists (attention.cuh), for a group of neighbouring query tiles together: the tiles that any
    needs, ascending unless another order lets query tiles begin with one that has a key for each of their
    rows."""
    import torch

    device, q_tiles, k_tiles, groups = (
        row_ptr.device,
        -(-seq_q // tiles.TILE),
        -(-seq_k // tiles.TILE),
        _groups(seq_q, group),
    )
    code, bitmaps = schedule.edged(tile_index, tile_code, bitmaps, seq_k)
    row = torch.arange(masks * q_tiles, device=device).repeat_interleave((row_ptr[1:] - row_ptr[:-1]).long())
    which = row // q_tiles * groups + row % q_tiles // group
    cells, where = torch.unique(which * k_tiles + tile_index.long(), return_inverse=True)
    entries = torch.full((cells.numel(), 4), _NOT_NEEDED, dtype=torch.int32, device=device)
    entries[where, 4 - group + row % q_tiles % group] = code
    place, length = cells % k_tiles * tiles.TILE, seq_k // keys  # with one residue all places are smaller
    if group == 2 and keys > 1:
        entries[:, 0], entries[:, 1] = place % length, place // length
    else:
        entries[:, 0], entries[:, 1:-group] = place, 0
    number = cells // k_tiles
    steps = torch.bincount(number, minlength=masks * groups)
    codes = _codes(group)
    entries = entries[_seen_first(entries[:, codes], number, steps, (bitmaps == 0).any(1))]
    steps = steps.cpu().numpy()
    needs = np.concatenate([[0], np.cumsum((entries[:, codes] != _NOT_NEEDED).sum(1).cpu().numpy())])
    table = np.stack([np.cumsum(steps) - steps, steps], 1)
    overlap = _overlap(entries, table, groups, group)
    return Lists(rows, keys, group, groups, entries, schedule.fragments(bitmaps), table, needs, overlap)


def _seen_first(code, number, steps, blank):
    """The order of entries, int64 (n,), in which query tiles begin, if possible, with a tile that has a key
    for each of their rows: ascending, descending, or ascending behind one from the middle.

    code: int32 (n, query tiles of a group), the codes of each entry; number: int64 (n,), the list of each
    entry, ascending; steps: int64 (lists,), how many each has; blank: bool, whether the bitmap of a code
    leaves a row without a key. Such a row has nothing that its weights could be relative to, and costs a
    kernel more time later.
    """
    import torch

    count, place = len(number), torch.arange(len(number), device=number.device)
    needed, code = code != _NOT_NEEDED, code.long()
    waits = torch.cat([blank, blank.new_zeros(1)])[torch.where(code >= 0, code, len(blank))]
    behind = torch.cat([waits, waits.new_zeros(1, code.shape[1])])  # of query tiles that need nothing

    def extreme(which, missing, places, of):
        return torch.full((len(steps), *of.shape[1:]), missing, device=of.device).scatter_reduce(
            0, of, places, which
        )

    lists = number[:, None].expand(-1, code.shape[1])
    first = extreme("amin", count, torch.where(needed, place[:, None], count), lists)
    last = extreme("amax", -1, torch.where(needed, place[:, None], -1), lists)
    ascending, descending = (behind.gather(0, end % (count + 1)).sum(1) for end in (first, last))
    middle = extreme("amin", count, torch.where((needed & ~waits).all(1), place, count), number)
    key = torch.where((descending < ascending)[number], -place, place)
    neither = (torch.minimum(ascending, descending) > 0) & (middle < count)
    key[middle[neither]] = -count
    return torch.argsort(number * (3 * count) + key)


def _overlap(entries, table, groups: int, group: int):
    """Lists.overlap of these lists: the most tiles, up to MOST_KEPT, that are first here and last
    there, in the same order."""
    places = entries[:, : _codes(group).start].cpu().numpy()
    first, steps = table.T
    which = np.arange(len(table)) % groups
    found = np.zeros((2, len(table)), np.int64)
    for side, by in enumerate((-1, 1)):
        here = np.flatnonzero((which + by >= 0) & (which + by < groups))
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
        codes = _codes(part.tiles)
        some[:, codes] += base * (some[:, codes] >= 0)
        entries.append(some)
        base += part.fragments.shape[0]
    return torch.cat(entries).contiguous(), torch.cat([p.fragments for p in parts]).contiguous()
