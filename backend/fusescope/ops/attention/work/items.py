"""Items of work: the lists of a part, whole or cut into pieces, and which worker, a warpgroup for each query
tile of a group, does each (cuda/attention/parts.h says what each number is).

Predictions are in steps of one KV tile of a worker while the other worker of its multiprocessor is busy too,
0.87 us on an H200 at 64 columns. The constants are a fit to 90 recorded times there (of the kernel
v5_parts, 2 us a launch; root mean square of the relative error 5 %), those of pieces to 157 times of 52 cells
(cuda/attention/NOTES_pieces.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fusescope.ops.attention.work.dealing import Teams, fill, place
from fusescope.ops.attention.work.lists import Lists

ITEM_STEPS = 8192  # kItemSteps: more than an item may have
ITEM_GROUPS = 1 << 24  # kItemGroups: more groups of query tiles than there are
PART = 3.5  # the launch of a further part
_ITEM = 2.5  # beginning and end of an item, in steps
_MERGE = 2.5  # of an item in a later part: merging with rows that are there
_PIECE = 2.5  # leaving a partial result and a share in joining those of a list
_JOIN = 0.5  # where there are any
_PARTIAL = 0.012  # for each of them
_STEP_SAVED = 0.1  # of a step, saved by a KV tile that the item before left in shared memory
# cutting must be predicted to bring the time below this share: partial results take tens of KiB each
MAX_REMAINING_TIME = 0.98
_LIMITS = 7  # tried, halving what lies between an even share and no cut
_SORTED = 3  # items a worker that are dealt the costliest first


@dataclass(frozen=True)
class Items:
    """rows int32 (rounds · workers, 4) and pieces int32 (slots, 4) as parts.h has them; took: the predicted
    steps."""

    rows: np.ndarray
    pieces: np.ndarray
    took: float


class _Dealt(NamedTuple):
    """Items and who does them: int64 (n, 6) of list, copy, first entry, steps, slot or −1, worker, in the
    order in which workers do them; pieces, int64 (slots, 2) of the list's first slot and its slots;
    predicted steps."""

    items: np.ndarray
    pieces: np.ndarray
    took: float


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
    for so many workers, ``per_sm`` of which share a multiprocessor.

    Lists are dealt whole, each to a worker of the block that is predicted to be free first; or those that
    would end behind a limit are cut to fill what the others leave up to it, where the limit that is
    predicted to be best gains enough. Neighbouring lists go to one worker where they have KV tiles in
    common, which it keeps. later: rows are merged with those of an earlier part, and heads go the other way
    round: the cache still has what that part did last; alone: there is no other part.
    """
    longest = int(part.table[:, 1].max(initial=0))
    if longest >= ITEM_STEPS:
        raise ValueError(
            f"unsupported: a list of {longest} KV tiles (work items have fewer than {ITEM_STEPS})"
        )
    teams = Teams(workers, per_sm)
    order = _order(part, copies, workers, later)
    best = whole = _whole(part, order, teams, later)
    low, high = float(_cost(part, order, later).sum()) / workers, whole.took
    for _ in range(_LIMITS):
        if low + _JOIN >= min(best.took, MAX_REMAINING_TIME * whole.took):
            break
        limit = (low + high) / 2
        cut = _cut(part, order, teams, later, limit)
        low, high = (low, limit) if cut else (limit, high)
        if cut and cut.took < min(best.took, MAX_REMAINING_TIME * whole.took):
            best = cut
    if alone:
        best = _in_stretches(part, copies, teams, best)
    return Items(*_rows(part, best, masks, copies, workers), best.took)


def uncut(part: Lists, copies: int, workers: int, per_sm: int) -> float:
    """Predicted steps where every list is an item of its own."""
    return _whole(part, _order(part, copies, workers, False), Teams(workers, per_sm), False).took


def _order(part: Lists, copies: int, workers: int, later: bool):
    """Int64 (n, 2) of list and copy: lists more than half as costly as the costliest, then the others, both
    head by head, so that K and V stay in the cache; of the last ones the costliest first, so that short ones
    fill what those leave. A later part's empty lists are left out: their rows are there already."""
    lists = np.flatnonzero((part.table[:, 1] > 0) | (not later))
    copy = np.arange(copies)[:: -1 if later else 1]
    found = np.stack([np.tile(lists, copies), np.repeat(copy, len(lists))], 1)
    cost = _cost(part, found, later)
    order = np.argsort(2 * cost <= cost.max(initial=0), kind="stable")
    last = order[-_SORTED * workers :]
    last[:] = last[np.argsort(-cost[last], kind="stable")]
    return found[order]


def _cost(part: Lists, items, later: bool):
    """Predicted steps of each list as an item of its own."""
    first, steps = part.table[items[:, 0]].T
    spent = _spent(part)
    return spent[first + steps] - spent[first] + _ITEM + _MERGE * later


def _spent(part: Lists):
    """Float64 (entries + 1,), what the steps before each entry take: the warpgroups of a worker share a step,
    and one that only one of two needs takes about three quarters of the time."""
    return (part.needs / part.tiles + np.arange(len(part.needs))) / 2


def _whole(part: Lists, order, teams: Teams, later: bool) -> _Dealt:
    where, done = place(_cost(part, order, later), teams)
    return _Dealt(_items(part, order, where), np.zeros((0, 2), np.int64), teams.last(done))


def _items(part: Lists, order, where):
    slot, where = np.full(len(order), -1), np.broadcast_to(where, len(order))
    return np.column_stack([order, part.table[order[:, 0]], slot, where])


def _cut(part: Lists, order, teams: Teams, later: bool, limit: float) -> _Dealt | None:
    """Lists that a multiprocessor alone would not do by the limit are cut into equal pieces of which it does
    two; what would still end behind the limit is cut to fill the others' room up to it. None where that is
    too little."""
    overhead, spent = _ITEM + _PIECE + _MERGE * later, _spent(part)
    first, steps = part.table[order[:, 0]].T
    if limit <= overhead:
        return None
    takes = spent[first + steps] - spent[first]
    count = np.clip(np.ceil(takes / (limit - overhead)), 1, np.maximum(steps, 1)).astype(np.int64)
    count[teams.alone * (takes + overhead) <= limit] = 1
    which = np.repeat(np.arange(len(order)), count)
    i, of = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count), count[which]
    begin = first[which] + i * steps[which] // of
    end = first[which] + (i + 1) * steps[which] // of
    where, done = place(spent[end] - spent[begin] + overhead - _PIECE * (of == 1), teams, limit)
    items = np.column_stack([order[which], begin, end - begin, where])
    left, pieces = items[where < 0], []
    ranges = [(low, low + long) for low, long in left[:, 2:4].tolist()]
    for (number, copy, *_), found in zip(
        left.tolist(), fill(spent, ranges, teams.rooms(done, limit), overhead)
    ):
        if found is None:
            return None
        for low, long, worker, cost in found:
            pieces.append((number, copy, low, long, worker))
            done[worker] += cost
    items = np.concatenate([items[where >= 0], np.array(pieces, np.int64).reshape(-1, 5)])
    items, pieces = _with_slots(part, items)
    return _Dealt(items, pieces, teams.last(done) + _JOIN * (len(pieces) > 0) + _PARTIAL * len(pieces))


def _with_slots(part: Lists, items):
    """Items (list, copy, first entry, steps, worker) with slots for the pieces of lists; and the first
    slot and the slots of each one's list."""
    number = items[:, 1] * len(part.table) + items[:, 0]
    _, inverse, count = np.unique(number, return_inverse=True, return_counts=True)
    cut, by_place = count > 1, np.lexsort((items[:, 2], number))
    slot = np.full(len(items), -1)
    pieces = by_place[cut[inverse[by_place]]]
    slot[pieces] = np.arange(len(pieces))
    slots = count[cut]
    return np.insert(items, 4, slot, 1), np.repeat(np.stack([np.cumsum(slots) - slots, slots], 1), slots, 0)


def _in_stretches(part: Lists, copies: int, teams: Teams, given: _Dealt) -> _Dealt:
    """What is given or, where neighbouring lists have many KV tiles in common and that is predicted to be no
    later, a stretch of neighbours for each worker.

    Without that, all workers would work on a few heads at once, which the cache then holds: better where
    lists have tiles far away.
    """
    workers, per_sm = teams
    up, down = part.overlap.sum(1)
    lists = np.arange(len(part.table))[:: -1 if down > up else 1]
    order = np.stack([np.tile(lists, copies), np.repeat(np.arange(copies), len(lists))], 1)
    items = _items(part, order, 0)
    kept = _kept(part, items)
    if 4 * kept.sum() < items[:, 3].sum() or not kept.any():
        return given
    cost = _cost(part, order, False)
    done = np.cumsum(cost - _STEP_SAVED * kept)
    stretch = ((done - (cost - _STEP_SAVED * kept) / 2) / done[-1] * workers).astype(np.int64)
    items[:, 5] = stretch % per_sm * teams.blocks + stretch // per_sm  # neighbours on one multiprocessor
    each = np.bincount(items[:, 5], cost - _STEP_SAVED * _kept(part, items), workers).tolist()
    took = teams.last(each)
    return _Dealt(items, given.pieces[:0], took) if took <= given.took else given


def _kept(part: Lists, items):
    """How many KV tiles each item takes over from the one in front of it, 0 where that is of another
    worker."""
    which, whole = items[:, 0], items[:, 4] < 0
    by, kept = np.diff(which), np.zeros(len(items), np.int64)
    same = (
        (items[1:, 5] == items[:-1, 5])
        & (items[1:, 1] == items[:-1, 1])
        & (abs(by) == 1)
        & whole[1:]
        & whole[:-1]
    )
    kept[1:] = np.where(same, part.overlap[(by < 0).astype(int), which[1:]], 0)
    return kept


def _rows(part: Lists, dealt: _Dealt, masks: tuple[int, int], copies: int, workers: int):
    """(rows, pieces) of all copies."""

    def of(which, copy):  # (group of query tiles, head)
        mask, group = np.divmod(which, part.groups)
        return group, mask * copies + copy if masks[1] == 1 else copy * masks[1] + mask

    items = dealt.items[np.argsort(dealt.items[:, 5], kind="stable")]
    which, copy, first, steps, slot, worker = items.T
    group, head = of(which, copy)
    turn = np.arange(len(worker)) - np.searchsorted(worker, worker)
    rows = np.zeros((int(turn.max(initial=-1)) + 1, workers, 4), np.int32)
    rows[:, :, 0] = -1
    rows[turn, worker] = np.stack(
        [group + ITEM_GROUPS * _kept(part, items), head, first, steps + ITEM_STEPS * (1 + slot)], 1
    )
    return rows.reshape(-1, 4), np.pad(dealt.pieces, ((0, 0), (0, 2))).astype(np.int32)
