"""Communication and arithmetic of one rank from the intervals of a trace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

Interval = tuple[float, float]


@dataclass(frozen=True)
class Shares:
    """Times of one rank within one call, in ms: the call, communication (waiting for other ranks included),
    arithmetic, and the part of the communication during which no arithmetic ran."""

    span_ms: float
    communication_ms: float
    compute_ms: float
    exposed_ms: float

    @property
    def share(self) -> float:
        """Communication over the call, 0 … 1."""
        return self.communication_ms / self.span_ms if self.span_ms else 0.0

    @property
    def hidden(self) -> float | None:
        """The part of the communication that arithmetic covers, 0 … 1; None without communication."""
        return 1 - self.exposed_ms / self.communication_ms if self.communication_ms else None

    def to_json(self) -> dict:
        return asdict(self) | {"share": self.share, "hidden": self.hidden}


def shares(span_ms: float, communication: Iterable[Interval], compute: Iterable[Interval]) -> Shares:
    """Of intervals (begin, end) in ms that may overlap in any way."""
    sent, worked = union(communication), union(compute)
    both = sum(e - b for b, e in common(sent, worked))
    total = sum(e - b for b, e in sent)
    return Shares(span_ms, total, sum(e - b for b, e in worked), total - both)


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time as disjoint intervals in order."""
    found: list[Interval] = []
    for begin, end in sorted(i for i in intervals if i[1] > i[0]):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def common(a: list[Interval], b: list[Interval]) -> list[Interval]:
    """The time that lies in both of two lists of disjoint intervals in order."""
    found, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        begin, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if begin < end:
            found.append((begin, end))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return found


def without(a: list[Interval], b: list[Interval]) -> list[Interval]:
    """The time of ``a`` that does not lie in ``b``; lists of disjoint intervals in order."""
    found = []
    for begin, end in a:
        for cut_begin, cut_end in b:
            if cut_end <= begin or cut_begin >= end:
                continue
            if cut_begin > begin:
                found.append((begin, cut_begin))
            begin = cut_end
        if begin < end:
            found.append((begin, end))
    return found
