"""Offsets between the clocks of hosts, from collectives: no rank leaves an all-reduce before all
have come, so that all leave it at nearly the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LEAST_NS = 20_000
"""Ends of one collective differ by about this much on one host; a smaller offset counts as none."""
FEWEST = 5  # collectives that an offset is estimated from
_ROUNDS = 100
_SETTLED_NS = 50


@dataclass(frozen=True)
class Clock:
    """offset_ns: added to the times of the clock's ranks (0: none seen); estimate_ns: what the collectives
    say, spread_ns: the median distance of single ones from it; collectives: how many; None where too few."""

    offset_ns: int
    estimate_ns: int | None
    spread_ns: int | None
    collectives: int


def estimate(which: np.ndarray, end: np.ndarray, clock: np.ndarray, count: int) -> list[Clock]:
    """One Clock for each of ``count``; number 0 is the one that the others are held to.

    One row per event of a synchronising collective: which one, when it ended (absolute ns), whose clock that
    is. A clock without FEWEST collectives shared with another has no estimate. A clock is corrected where its
    estimate exceeds LEAST_NS and three times its spread.
    """
    which, end, clock = _shared(which, end, clock, count)
    offset, known = np.zeros(count, np.int64), np.zeros(count, bool)
    known[0] = count > 0
    for _ in range(count):  # from the known clocks to their neighbours
        reached = known[clock]
        reference = _medians(end + offset[clock], np.where(reached, which, -1), which)
        there = (reference != _NONE) & ~reached
        fresh = [c for c in np.unique(clock[there]).tolist() if (there & (clock == c)).sum() >= FEWEST]
        if not fresh:
            break
        for c in fresh:
            rows = there & (clock == c)
            offset[c] = int(np.median(reference[rows] - end[rows]))
            known[c] = True
    used = known[clock] if len(clock) else np.zeros(0, bool)
    which, end, clock = which[used], end[used], clock[used]
    rest = np.zeros(len(end), np.int64)
    for _ in range(_ROUNDS):
        rest = end + offset[clock] - _medians(end + offset[clock], which, which)
        moved = 0
        for c in range(1, count):
            if known[c] and (clock == c).any():
                by = -int(np.median(rest[clock == c])) // 2
                offset[c] += by
                moved = max(moved, abs(by))
        if moved < _SETTLED_NS:
            break
    return [_clock(c, offset, known, which, clock, rest) for c in range(count)]


def spans(which: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Of each collective by number: whether all its events overlap in time, as those of a synchronising one
    must (to LEAST_NS)."""
    count = int(which.max()) + 1 if len(which) else 0
    last, first = np.full(count, np.iinfo(np.int64).min), np.full(count, np.iinfo(np.int64).max)
    np.maximum.at(last, which, begin)
    np.minimum.at(first, which, end)
    return last <= first + LEAST_NS


def by_host(hosts: Mapping[int, str | None], ranks: Sequence[int]) -> dict[int, int]:
    """Rank → number of its clock: ranks of one host share one; a rank whose host is unknown has its own."""
    names: dict[object, int] = {}
    return {r: names.setdefault(hosts[r] if hosts.get(r) else ("rank", r), len(names)) for r in ranks}


def _clock(c: int, offset, known, which, clock, rest) -> Clock:
    rows = clock == c
    shared = len(np.unique(which[rows]))
    if c == 0:
        return Clock(0, 0, 0, shared)
    if not known[c]:
        return Clock(0, None, None, shared)
    spread = int(np.median(np.abs(rest[rows] - np.median(rest[rows])))) if shared else 0
    seen = abs(int(offset[c])) > max(LEAST_NS, 3 * spread)
    return Clock(int(offset[c]) if seen else 0, int(offset[c]), spread, shared)


def _shared(which, end, clock, count: int):
    """The events of collectives that two clocks or more take part in."""
    if not len(which):
        return which, end, clock
    pairs = np.unique(which * count + clock) // count
    many = np.bincount(pairs, minlength=int(which.max()) + 1) > 1
    rows = many[which]
    return which[rows], end[rows], clock[rows]


_NONE = int(np.iinfo(np.int64).min)


def _medians(values: np.ndarray, groups: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The median of the values of each group, for each of ``wanted``; _NONE for a group without values.
    Group -1 counts nowhere."""
    if not len(values):
        return np.full(len(wanted), _NONE)
    order = np.lexsort((values, groups))
    ordered = groups[order]
    low, high = np.searchsorted(ordered, wanted, "left"), np.searchsorted(ordered, wanted, "right")
    a, b = (
        values[order[np.minimum(at, len(order) - 1)]]
        for at in ((low + np.maximum(high - 1, low)) // 2, (low + high) // 2)
    )
    return np.where(high > low, a + (b - a) // 2, _NONE)
