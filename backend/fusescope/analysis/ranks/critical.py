"""What the end of a job waited for, walked backwards over all ranks.

From the activity that ended last, each step goes to what it waited for: a collective that no rank can leave
early to the rank that came to it last; another activity to the one before it on its stream, or, where that
left a gap, to the last of the rank that had ended. Events between streams are not in a trace, so a gap that
the launch does not explain is called dependency or launch latency.
"""

from __future__ import annotations

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


class Last:
    """Who came last to each collective, for ``path``: (rank, row) → (rank, row), held as columns."""

    def __init__(self, sizes: Mapping[int, int], which, rank, row, came):
        """sizes: rank → its activities; by event: its collective, rank, row, and whether it came last."""
        count = int(which.max()) + 1 if len(which) else 0
        self._rank, self._row = np.full(count, -1), np.full(count, -1)
        self._rank[which[came]], self._row[which[came]] = rank[came], row[came]
        self._which = {r: np.full(size, -1) for r, size in sizes.items()}
        for r, of in self._which.items():
            of[row[rank == r]] = which[rank == r]

    def get(self, at: tuple[int, int], default: tuple[int, int]) -> tuple[int, int]:
        which = self._which[at[0]].item(at[1])
        row = self._row.item(which) if which >= 0 else -1
        return default if row < 0 else (self._rank.item(which), row)


def path(
    ranks: Mapping[int, Activities], last: Last | Mapping[tuple[int, int], tuple[int, int]]
) -> list[Segment]:
    """The path from the first activity to the last that ended, in order of time. ranks: all on one clock;
    last: (rank, row) of a collective that waits for all → (rank, row) of the one that came to it last.

    Neighbours of one rank and kind are joined. [] without activities.
    """
    each = {rank: _Lanes(of) for rank, of in ranks.items() if len(of)}
    if not each:
        return []
    rank = max(each, key=lambda r: each[r].latest)
    row, until = each[rank].last, each[rank].latest
    found: list[Segment] = []
    while True:
        lanes = each[rank]
        begin, kind, name = lanes.begin.item(row), KINDS[lanes.kind.item(row)], lanes.name(row)
        to = last.get((rank, row), (rank, row))
        came = each[to[0]].begin.item(to[1])
        if to != (rank, row) and begin <= came < until:
            _put(found, rank, came, until, kind, name)
            rank, row = to
            lanes, begin = each[rank], came
        else:
            _put(found, rank, begin, until, kind, name)
        before = lanes.before.item(row)
        if before < 0:
            break
        until = lanes.end.item(before)
        if begin > until:
            launch = lanes.launch.item(row)
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
    """A rank's activities, and of each what it came after: ``before`` (-1: it was the first). ``last``: the
    row that ended last, at ``latest``."""

    def __init__(self, of: Activities):
        self.begin, self.end, self.kind, self.launch = of.begin, of.end, of.kind, of.launch
        self._names, self._name = of.names, of.name
        order = np.lexsort((of.kind == COMMUNICATION, of.end))  # of equal ends a collective's is the last
        self.last, self.latest = order[-1].item(), of.end[order[-1]].item()
        self.before = self._before(of, order)

    def name(self, row: int) -> str:
        code = self._name.item(row)
        return self._names[code] if code >= 0 else ""

    @staticmethod
    def _before(of: Activities, by_end: np.ndarray) -> np.ndarray:
        """The one before on the stream, back to back, else the last of the rank that had ended."""
        rows = np.lexsort((np.arange(len(of)), of.stream))
        same = of.stream[rows][1:] == of.stream[rows][:-1]
        own = np.full(len(of), -1)
        own[rows[1:][same]] = rows[:-1][same]
        gap = of.begin - of.end[own]
        near = (own >= 0) & (gap >= 0) & (gap <= _NEAR_NS) & (of.begin[own] < of.begin)
        ends = of.end[by_end]
        at = np.searchsorted(ends, of.begin, "right") - 1
        # not those of no length at this very time
        lasting = np.maximum.accumulate(np.where(of.begin[by_end] < ends, np.arange(len(of)), -1))
        at = np.maximum(np.where(at >= 0, lasting[at], -1), np.searchsorted(ends, of.begin, "left") - 1)
        return np.where(near, own, np.where(at >= 0, by_end[at], -1))
