"""Items of work: the lists of a part cut into pieces and given to workers, pairs of warpgroups
(cuda/attention/parts.h says what each number is).

Predictions are in steps of one KV tile of a worker while all others are busy too: 1.1 to 1.25 us on an H200
with two workers a multiprocessor, of which what an item of a later part takes besides its steps was measured;
the rest are guesses.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from fusescope.ops.attention.work.lists import Lists

ITEM_STEPS = 8192  # kItemSteps: more than an item may have
ITEM_PAIRS = 1 << 24  # kItemPairs: more pairs of query tiles than there are
_ITEM = 1.5  # beginning and end of an item, in steps
_PIECE = 1.0  # leaving a partial result
_MERGE_LAUNCH = 3.0  # the launch that merges partial results
_MERGE = 2.0  # of an item in a later part: merging with rows that are there
PART = 5.0  # the launch of a further part
_STEP_SAVED = 0.1  # of a step, saved by a KV tile that the item before left in shared memory
# a further cut must be predicted to bring the time below this share: partial results take tens of KiB each
MAX_REMAINING_TIME = 0.98
_CUTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # into how many pieces the longest list may be cut
_SIMULATED = 1 << 14  # items up to which each is placed for itself


@dataclass(frozen=True)
class Items:
    """rows int32 (rounds · workers, 4) and merges int32 (n, 4) as parts.h has them; slots of partial results;
    took: the predicted steps."""

    rows: np.ndarray
    merges: np.ndarray
    slots: int
    took: float

    @property
    def steps(self) -> np.ndarray:
        """Of each item, int32 (items,)."""
        return self.rows[self.rows[:, 0] >= 0, 3] % ITEM_STEPS


def make(
    part: Lists,
    masks: tuple[int, int],
    copies: int,
    workers: int,
    per_sm: int,
    later: bool = False,
    alone: bool = True,
) -> Items:
    """The items of a part whose masks (batch entries, heads) ``copies`` (batch entry, head) pairs share each,
    for so many workers, ``per_sm`` of which share a multiprocessor: with b blocks worker t is one of
    block t % b.

    Lists longer than a bound are cut into pieces of about equal length. The bound is the length of the
    longest list through 1, 2, 3, … pieces, whichever is predicted to be done first, fewer pieces where more
    gain little. Neighbouring lists go to one worker where they have KV tiles in common, which it keeps.
    later: rows are merged with those of an earlier part, and heads go the other way round: the cache still
    has what that part did last; alone: there is no other part.
    """
    longest, best = int(part.table[:, 1].max(initial=0)), None
    if longest >= ITEM_STEPS:
        raise ValueError(
            f"unsupported: a list of {longest} KV tiles (work items have fewer than {ITEM_STEPS})"
        )
    for pieces in _CUTS:
        bound = -(-longest // pieces) if longest else 1
        found = _pieces(part, bound, later)
        placed = _balanced(found, copies, workers, per_sm, later)
        if best is None:
            least = _steps(found[0], placed[1], later).sum() / workers  # whatever is cut
        if best is None or placed[0] < MAX_REMAINING_TIME * best[0][0]:
            best = placed, found
        if bound <= 1 or MAX_REMAINING_TIME * best[0][0] <= least:
            break
    placed, found = best
    if alone:
        placed = _in_stretches(part, found, copies, workers, per_sm, *placed)
    return Items(*_rows(part, found, *placed[1:], masks, copies, workers), placed[0])


def uncut(part: Lists, copies: int, workers: int, per_sm: int) -> float:
    """Predicted steps where every list is an item of its own."""
    return _balanced(
        _pieces(part, max(1, int(part.table[:, 1].max(initial=0))), False), copies, workers, per_sm, False
    )[0]


def _pieces(part: Lists, bound: int, later: bool):
    """(pieces, merges) of one copy: int64 (n, 5) of list, first entry, steps, slot or −1, four times the
    cost; int64 (m, 3) of list, first slot, slots. Lists are in the order in which they overlap more,
    ascending or descending."""
    first, steps = part.table.T
    number = np.flatnonzero(
        (steps > 0) | (not later)
    )  # a later part's empty lists have their rows there already
    count = np.maximum(1, -(-steps[number] // bound))
    which = np.repeat(number, count)
    i = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
    of = np.repeat(count, count)
    low, high = first[which] + i * steps[which] // of, first[which] + (i + 1) * steps[which] // of
    slot = np.where(of > 1, np.cumsum(of > 1) - 1, -1)
    # Two warpgroups share a step: one that only one of them needs takes about three quarters of the time.
    cost = part.needs[high] - part.needs[low] + 2 * (high - low)
    pieces = np.stack([which, low, high - low, slot, cost], 1)
    cut = count > 1
    merges = np.stack([number[cut], (np.cumsum(count * cut) - count)[cut], count[cut]], 1)
    up, down = part.overlap.sum(1)
    return pieces[:: -1 if down > up else 1], merges


def _steps(pieces, items, later: bool):
    """Predicted for each item (piece, copy)."""
    return (pieces[:, 4] / 4 + _ITEM + _PIECE * (pieces[:, 3] >= 0) + _MERGE * later)[items[:, 0]]


def _balanced(found, copies: int, workers: int, per_sm: int, later: bool):
    """(predicted steps, items, int64 (n, 2) of piece and copy, worker of each): each to the worker with less
    to do of the block with least."""
    pieces, merges = found
    items, end = _long_first(pieces, copies, later), _MERGE_LAUNCH if len(merges) else 0.0
    took = _steps(pieces, items, later)
    if len(took) == 0:
        return end, items, items[:, 0]
    if len(took) > _SIMULATED:
        turn, place = np.divmod(np.arange(len(took)), workers)
        where = np.where(turn % 2, workers - 1 - place, place)
        return end + np.bincount(where, took, workers).max(), items, where
    where, busy, blocks = np.empty(len(took), np.int64), [0.0] * workers, -(-workers // per_sm)
    free = [(0.0, block) for block in range(blocks)]
    for i, each in enumerate(took.tolist()):
        done, block = free[0]
        where[i] = worker = min(range(block, workers, blocks), key=busy.__getitem__)
        busy[worker] += each
        heapq.heapreplace(free, (done + each, block))
    return end + max(busy), items, where


def _long_first(pieces, copies: int, backwards: bool):
    """int64 (items, 2) of piece and copy: of all copies pieces more than half as costly as the costliest,
    then the others, copy by copy so that K and V stay in the cache."""
    long, copy = 2 * pieces[:, 4] > pieces[:, 4].max(initial=0), np.arange(copies)[:: -1 if backwards else 1]
    return np.concatenate([_of_each_copy(np.flatnonzero(group), copy) for group in (long, ~long)])


def _of_each_copy(pieces, copy):
    return np.stack([np.tile(pieces, len(copy)), np.repeat(copy, len(pieces))], 1)


def _in_stretches(part: Lists, found, copies: int, workers: int, per_sm: int, took: float, items, where):
    """Like what is given, (predicted steps, items, worker of each), or, where neighbouring lists have many KV
    tiles in common and that is predicted to be no later, with a stretch of neighbours for each worker.

    Without that, all workers would work on a few heads at once, which the cache then holds: better where
    lists have tiles far away.
    """
    pieces, merges = found
    ordered = _of_each_copy(np.arange(len(pieces)), np.arange(copies))
    kept = _kept(part, pieces, ordered, np.zeros(len(ordered)))
    if 4 * kept.sum() < pieces[ordered[:, 0], 2].sum() or not kept.any():
        return took, items, where
    each = _steps(pieces, ordered, False) - _STEP_SAVED * kept
    done = np.cumsum(each)
    stretch = ((done - each / 2) / done[-1] * workers).astype(np.int64)
    there = stretch % per_sm * -(-workers // per_sm) + stretch // per_sm  # neighbours on one multiprocessor
    each = _steps(pieces, ordered, False) - _STEP_SAVED * _kept(part, pieces, ordered, there)
    needed = _MERGE_LAUNCH * (len(merges) > 0) + np.bincount(there, each, workers).max()
    return (needed, ordered, there) if needed <= took else (took, items, where)


def _kept(part: Lists, pieces, items, group):
    """How many KV tiles each item takes over from the one in front of it, 0 where that is of another
    group."""
    which, whole = pieces[items[:, 0], 0], pieces[:, 3] < 0
    by, kept = np.diff(which), np.zeros(len(items), np.int64)
    same = (
        (group[1:] == group[:-1])
        & (items[1:, 1] == items[:-1, 1])
        & (abs(by) == 1)
        & whole[items[1:, 0]]
        & whole[items[:-1, 0]]
    )
    kept[1:] = np.where(same, part.overlap[(by < 0).astype(int), which[1:]], 0)
    return kept


def _rows(part: Lists, found, items, where, masks: tuple[int, int], copies: int, workers: int):
    """(rows, merges, slots) of all copies."""
    pieces, merges = found
    slots = int(merges[:, 2].sum())

    def head(mask, copy):
        return mask * copies + copy if masks[1] == 1 else copy * masks[1] + mask

    by_worker = np.argsort(where, kind="stable")
    items, worker = items[by_worker], where[by_worker]
    piece, copy = pieces[items[:, 0]], items[:, 1]
    mask, pair = np.divmod(piece[:, 0], part.pairs)
    slot = np.where(piece[:, 3] >= 0, copy * slots + piece[:, 3], -1)
    turn = np.arange(len(worker)) - np.searchsorted(worker, worker)
    rows = np.zeros((int(turn.max(initial=-1)) + 1, workers, 4), np.int32)
    rows[:, :, 0] = -1
    kept = _kept(part, pieces, items, worker)
    rows[turn, worker] = np.stack(
        [pair + ITEM_PAIRS * kept, head(mask, copy), piece[:, 1], piece[:, 2] + ITEM_STEPS * (1 + slot)], 1
    )
    copy = np.repeat(np.arange(copies), len(merges))
    mask, pair = np.divmod(np.tile(merges[:, 0], copies), part.pairs)
    merges = np.stack(
        [pair, head(mask, copy), copy * slots + np.tile(merges[:, 1], copies), np.tile(merges[:, 2], copies)],
        1,
    )
    return rows.reshape(-1, 4), merges.astype(np.int32), slots * copies
