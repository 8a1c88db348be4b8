"""Items of work: the lists of a part cut into pieces and given to teams of warpgroups (cuda/attention/parts.h says what each number is).

Predictions are in steps of one KV tile of a team while all others are busy too: 1.1 to 1.25 us on an H200 with two teams a multiprocessor, of
which what an item of a later part takes beside its steps was measured; the rest are guesses.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np

ITEM_STEPS = 8192  # kItemSteps: more than an item may have
_ITEM = 1.5  # beginning and end of an item, in steps
_PIECE = 1.0  # leaving a partial result
_JOIN = 5.0  # the launch that joins partial results
_MERGE = 2.0  # of an item in a later part: merging with rows that are there
PART = 5.0  # the launch of a further part
_WORTH = 0.98  # a further cut has to be predicted to leave so much of the time: partial results take memory, tens of KB each
_CUTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # into how many pieces the longest list may be cut
_SIMULATED = 1 << 14  # items up to which each is placed for itself


@dataclass(frozen=True)
class Lists:
    """A part's lists: moduli of rows and keys, pairs of query tiles, entries int32 (n, 4) and fragments on the device; on the host for each
    list (mask · pairs + pair) its first entry and its steps (int64 (lists, 2)), and needs: how many query tiles need the steps before
    each entry (int64 (n + 1,))."""

    rows: int
    keys: int
    pairs: int
    entries: Any
    fragments: Any
    table: np.ndarray
    needs: np.ndarray


@dataclass(frozen=True)
class Items:
    """rows int32 (rounds · teams, 4) and joins int32 (n, 4) as parts.h has them; slots of partial results; took: the predicted steps."""

    rows: np.ndarray
    joins: np.ndarray
    slots: int
    took: float

    @property
    def steps(self) -> np.ndarray:
        """Of each item, int32 (items,)."""
        return self.rows[self.rows[:, 0] >= 0, 3] % ITEM_STEPS


def make(part: Lists, masks: tuple[int, int], copies: int, teams: int, a_block: int, later: bool = False) -> Items:
    """The items of a part whose masks (batch entries, heads) ``copies`` (batch entry, head) pairs share each, for so many teams, ``a_block``
    of which share a multiprocessor: with b blocks team t is one of block t % b.

    Lists longer than a bound are cut into pieces of about equal length. The bound is the length of the longest list through 1, 2, 3, …
    pieces, whichever is predicted to be done first, fewer pieces where more gain little. later: rows are merged with those of an earlier part.
    """
    longest, best = int(part.table[:, 1].max(initial=0)), None
    if longest >= ITEM_STEPS:
        raise ValueError(f"unsupported: a list of {longest} KV tiles (v5_parts takes fewer than {ITEM_STEPS})")
    for pieces in _CUTS:
        bound = -(-longest // pieces) if longest else 1
        found = _pieces(part, bound, later)
        took, where = _placed(found, copies, teams, a_block, later)
        if best is None or took < _WORTH * best[0]:
            best = took, found, where
        if bound <= 1:
            break
    took, found, where = best
    return Items(*_rows(found, where, part.pairs, masks, copies, teams), took)


def uncut(part: Lists, copies: int, teams: int, a_block: int) -> float:
    """Predicted steps where every list is an item of its own."""
    return _placed(_pieces(part, max(1, int(part.table[:, 1].max(initial=0))), False), copies, teams, a_block, False)[0]


def _pieces(part: Lists, bound: int, later: bool):
    """(pieces, joins) of one copy: int64 (n, 5) of list, first entry, steps, slot or −1, four times the cost; int64 (m, 3) of list, first slot, slots.

    Long pieces, more than half as costly as the costliest, come first.
    """
    first, steps = part.table.T
    number = np.flatnonzero((steps > 0) | (not later))  # a later part's empty lists have their rows there already
    count = np.maximum(1, -(-steps[number] // bound))
    which = np.repeat(number, count)
    i = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
    of = np.repeat(count, count)
    low, high = i * steps[which] // of, (i + 1) * steps[which] // of
    slot = np.where(of > 1, np.cumsum(of > 1) - 1, -1)
    # Two warpgroups share a step: one that only one of them needs takes about three quarters of the time.
    cost = part.needs[first[which] + high] - part.needs[first[which] + low] + 2 * (high - low)
    pieces = np.stack([which, first[which] + low, high - low, slot, cost], 1)
    cut = count > 1
    joins = np.stack([number[cut], (np.cumsum(count * cut) - count)[cut], count[cut]], 1)
    return pieces[np.argsort(2 * pieces[:, 4] <= pieces[:, 4].max(initial=0), kind="stable")], joins


def _placed(found, copies: int, teams: int, a_block: int, later: bool):
    """(predicted steps, team of each item): items as _order has them, each to the team with less to do of the block with least."""
    pieces, joins = found
    took = pieces[:, 4] / 4 + _ITEM + _PIECE * (pieces[:, 3] >= 0) + _MERGE * later
    end = _JOIN if len(joins) else 0.0
    order = _order(pieces, copies)
    if len(order) == 0:
        return end, order[:, 0]
    took = took[order[:, 0]]
    if len(order) > _SIMULATED:
        turn, place = np.divmod(np.arange(len(order)), teams)
        where = np.where(turn % 2, teams - 1 - place, place)
        return end + np.bincount(where, took, teams).max(), where
    where, busy, blocks = np.empty(len(order), np.int64), [0.0] * teams, -(-teams // a_block)
    free = [(0.0, block) for block in range(blocks)]
    for i, each in enumerate(took.tolist()):
        done, block = free[0]
        where[i] = team = min(range(block, teams, blocks), key=busy.__getitem__)
        busy[team] += each
        heapq.heapreplace(free, (done + each, block))
    return end + max(busy), where


def _order(pieces, copies: int):
    """int64 (items, 2) of piece and copy: long pieces of all copies, then the others, copy by copy so that K and V stay in the cache."""
    longs = int((2 * pieces[:, 4] > pieces[:, 4].max(initial=0)).sum())
    groups = [np.arange(longs), np.arange(longs, len(pieces))]
    each = [np.stack([np.tile(g, copies), np.repeat(np.arange(copies), len(g))], 1) for g in groups]
    return np.concatenate(each)


def _rows(found, where, pairs: int, masks: tuple[int, int], copies: int, teams: int):
    """(rows, joins, slots) of all copies."""
    pieces, joins = found
    slots = int(joins[:, 2].sum())

    def head(mask, copy):
        return mask * copies + copy if masks[1] == 1 else copy * masks[1] + mask

    which, copy = _order(pieces, copies).T
    mask, pair = np.divmod(pieces[which, 0], pairs)
    slot = np.where(pieces[which, 3] >= 0, copy * slots + pieces[which, 3], -1)
    items = np.stack([pair, head(mask, copy), pieces[which, 1], pieces[which, 2] + ITEM_STEPS * (1 + slot)], 1)
    by_team = np.argsort(where, kind="stable")
    turn = np.empty_like(where)
    turn[by_team] = np.arange(len(where)) - np.searchsorted(where[by_team], where[by_team])
    rows = np.zeros((int(turn.max(initial=-1)) + 1, teams, 4), np.int32)
    rows[:, :, 0] = -1
    rows[turn, where] = items
    copy = np.repeat(np.arange(copies), len(joins))
    mask, pair = np.divmod(np.tile(joins[:, 0], copies), pairs)
    joined = np.stack([pair, head(mask, copy), copy * slots + np.tile(joins[:, 1], copies), np.tile(joins[:, 2], copies)], 1)
    return rows.reshape(-1, 4), joined.astype(np.int32), slots * copies
