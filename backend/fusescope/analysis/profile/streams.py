"""How busy each stream of a device was, and how much of it ran at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusescope.analysis.ranks import intervals
from fusescope.analysis.ranks.activities import ABSENT


@dataclass(frozen=True)
class Stream:
    """Of one stream, whose number is None where the file names none: kernels and copies, and the ns in which
    any of them ran."""

    number: int | None
    events: int
    busy_ns: int


@dataclass(frozen=True)
class Concurrency:
    """Of one device with several streams, the busiest first. span_ns: from its first to its last activity;
    kernels_ns: in which kernels of two streams or more ran at once; copies_ns: in which a copy and a kernel
    of other streams did."""

    device: int | None
    span_ns: int
    streams: tuple[Stream, ...]
    kernels_ns: int
    copies_ns: int


def concurrency(
    begin: np.ndarray, end: np.ndarray, device: np.ndarray, stream: np.ndarray, copy: np.ndarray
) -> tuple[Concurrency, ...]:
    """Of each device that has several streams, by number: from columns of
    ``analysis.profile.device_time.Activities``."""
    found = []
    for one in np.unique(device):
        rows = np.flatnonzero(device == one)
        each = np.unique(stream[rows])
        if len(each) > 1:
            span = int(end[rows].max() - begin[rows].min())
            found.append(_of_device(_known(one), span, each, begin, end, stream, copy, rows))
    return tuple(found)


def _of_device(number, span, each, begin, end, stream, copy, rows) -> Concurrency:
    def unions(chosen: np.ndarray) -> list[intervals.Union]:
        own = (chosen[stream[chosen] == one] for one in each)
        return [intervals.union(begin[mine], end[mine]) for mine in own]

    busy, kernels, copies = unions(rows), unions(rows[~copy[rows]]), unions(rows[copy[rows]])
    streams = [
        Stream(_known(one), int((stream[rows] == one).sum()), intervals.length(own))
        for one, own in zip(each, busy, strict=True)
    ]
    both = []  # the copies of each stream with the kernels of the others
    for place, own in enumerate(copies):
        others = _joined([k for n, k in enumerate(kernels) if n != place])
        both.append(intervals.common(own, others))
    return Concurrency(
        number,
        span,
        tuple(sorted(streams, key=lambda s: -s.busy_ns)),
        intervals.length(intervals.several(kernels)),
        intervals.length(_joined(both)),
    )


def _joined(unions: list[intervals.Union]) -> intervals.Union:
    return intervals.union(*(np.concatenate(side) for side in zip(*unions, strict=True)))


def _known(number) -> int | None:
    return None if number == ABSENT else int(number)
