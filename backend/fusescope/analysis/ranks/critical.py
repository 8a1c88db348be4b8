"""What the end of a job waited for, walked backwards over all ranks.

From the activity that ended last, each step goes to what it waited for: a collective that no rank can leave
early to the rank that came to it last; another activity to the one before it on its stream, or, where that
left a gap, to the last of the rank that had ended. Events between streams are not in a trace, so a gap that
the launch does not explain is called dependency or launch latency.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fusescope.analysis.ranks.activities import ABSENT, COMMUNICATION, KINDS, Activities

HOST, LAUNCHED, UNKNOWN = "idle: host had not launched", "idle: dependency or launch latency", "idle"
_NEAR_NS = 5_000  # to the activity before on the same stream: back to back


@dataclass(frozen=True)
class Segment:
    """A stretch of the path on one rank, ns; kind: one of KINDS, HOST, LAUNCHED or UNKNOWN. activities: how
    many were joined; name: of the longest."""

    rank: int
    begin: int
    end: int
    kind: str
    name: str
    activities: int


def path(ranks: Mapping[int, Activities], last: Mapping[tuple[int, int], tuple[int, int]]) -> list[Segment]:
    """The path from the first activity to the last that ended, in order of time. ranks: all on one clock;
    last: (rank, row) of a collective that waits for all → (rank, row) of the one that came to it last.

    Neighbours of one rank and kind are joined. [] without activities.
    """
    each = {rank: _Lanes(of) for rank, of in ranks.items() if len(of)}
    if not each:
        return []
    rank = max(each, key=lambda r: each[r].ends[-1])
    row, until = each[rank].by_end[-1], each[rank].ends[-1]
    found: list[Segment] = []
    while True:
        lanes = each[rank]
        begin, kind, name = lanes.begin[row], KINDS[lanes.kind[row]], lanes.name(row)
        to = last.get((rank, row), (rank, row))
        if to != (rank, row) and begin <= each[to[0]].begin[to[1]] < until:
            _put(found, rank, each[to[0]].begin[to[1]], until, kind, name)
            rank, row = to
            lanes, begin = each[rank], each[rank].begin[row]
        else:
            _put(found, rank, begin, until, kind, name)
        before = lanes.before(row, begin)
        if before is None:
            break
        until = lanes.end[before]
        if begin > until:
            launch = lanes.launch[row]
            why = UNKNOWN if launch == ABSENT else HOST if launch > until else LAUNCHED
            _put(found, rank, until, begin, why, "")
        row = before
    return found[::-1]


def shares(of: list[Segment]) -> list[dict]:
    """rank, kind, ns, share of the whole path, by rank and kind; longest first."""
    sums: dict[tuple[int, str], int] = defaultdict(int)
    for s in of:
        sums[s.rank, s.kind] += s.end - s.begin
    whole = max(1, sum(sums.values()))
    rows = [{"rank": r, "kind": k, "ns": ns, "share": ns / whole} for (r, k), ns in sums.items()]
    return sorted(rows, key=lambda row: -row["ns"])


def _put(found: list[Segment], rank: int, begin: int, end: int, kind: str, name: str) -> None:
    """Add what lies before the segments found so far."""
    if end <= begin:
        return
    later = found[-1] if found else None
    if later and (later.rank, later.kind, later.begin) == (rank, kind, end):
        longest = later.name if later.end - later.begin >= end - begin else name
        found[-1] = Segment(rank, begin, later.end, kind, longest, later.activities + 1)
    else:
        found.append(Segment(rank, begin, end, kind, name, 1))


class _Lanes:
    """A rank's activities as lists, with the one before each on its stream and all by their ends."""

    def __init__(self, of: Activities):
        self.begin, self.end, self.kind, self.launch = (
            column.tolist() for column in (of.begin, of.end, of.kind, of.launch)
        )
        self._names, self._name = of.names, of.name
        order = np.lexsort((of.kind == COMMUNICATION, of.end))  # of equal ends a collective's is the last
        self.by_end, self.ends = order.tolist(), of.end[order].tolist()
        rows = np.lexsort((np.arange(len(of)), of.stream))
        same = of.stream[rows][1:] == of.stream[rows][:-1]
        previous = np.full(len(of), -1)
        previous[rows[1:][same]] = rows[:-1][same]
        self._previous = previous.tolist()

    def name(self, row: int) -> str:
        return self._names[self._name[row]] if self._name[row] >= 0 else ""

    def before(self, row: int, begin: int) -> int | None:
        """What the activity of that row, which began then, came after; None: it was the first."""
        own = self._previous[row]
        if own >= 0 and 0 <= begin - self.end[own] <= _NEAR_NS and self.begin[own] < begin:
            return own
        at = bisect_right(self.ends, begin) - 1
        while at >= 0 and self.begin[self.by_end[at]] >= begin:  # of no length, at this very time
            at -= 1
        return self.by_end[at] if at >= 0 else None
