"""What got slower from run to run: the newest time of each implementation and case against its best earlier
one, as asv does it over commits."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fusescope.analysis.compare.ratios import ratio
from fusescope.core import same_code
from fusescope.core.records import HEADLINE, Speedup, Time

THRESHOLD = 0.05
"""Slow-down from which on an alarm is raised; the whole interval must lie beyond it."""


@dataclass(frozen=True)
class Point:
    """One run's time. commit: of the project when it ran; source: hash of the kernel's, of a peer the version
    of torch; None where unknown."""

    run: str
    ended: float
    commit: str | None
    time: Time
    source: str | None


@dataclass(frozen=True)
class Series:
    """One implementation on one case on one kind of device, all runs, oldest first. case: as JSON."""

    op: str
    impl: str
    case: str
    dtype: str
    device_name: str
    mode: str
    points: tuple[Point, ...]

    @property
    def best(self) -> Point:
        """The fastest before the newest, of those that converged where one did."""
        return min(self.points[:-1], key=lambda p: (not p.time.converged, p.time.median))

    @property
    def last(self) -> Point:
        return self.points[-1]


@dataclass(frozen=True)
class Alarm:
    """A newest time that is slower than the best earlier one. ratio: best over newest (< 1). edited: whether
    the machine code may differ, None where a source is not recorded. control: median ratio of what had the
    same source in these two runs, None without any."""

    series: Series
    ratio: Speedup
    edited: bool | None
    control: float | None

    @property
    def cause(self) -> str:
        """ "machine" where unchanged implementations got slower too, "code" where the source was edited and
        they did not, else "unknown"."""
        if self.control is not None and self.control < 1 - THRESHOLD / 2:
            return "machine"
        return "code" if self.edited and self.control is not None else "unknown"


def series(rows: Iterable[dict]) -> list[Series]:
    """Rows of ``store.compare.history`` as series; of several records of one run the last counts."""
    found: dict[tuple, dict[str, dict]] = {}
    for row in sorted(rows, key=lambda r: (r["ended"], r["run"])):
        key = tuple(row[k] for k in ("op", "impl", "case", "dtype", "device_name"))
        found.setdefault(key, {})[row["run"]] = row
    made = []
    for key, by_run in found.items():
        newest = list(by_run.values())[-1]
        mode = next(m for m in HEADLINE if m in newest["times"])
        points = [
            Point(r["run"], r["ended"], r["commit"], r["times"][mode], r["source"])
            for r in by_run.values()
            if mode in r["times"]
        ]
        made.append(Series(*key, mode, tuple(points)))
    return made


def alarms(found: Sequence[Series], threshold: float = THRESHOLD) -> list[Alarm]:
    """The series whose newest time is slower than the best earlier one by more than ``threshold`` with all of
    the interval, the largest slow-down first."""
    raised = []
    for one in found:
        if len(one.points) < 2:
            continue
        change = ratio(one.best.time, one.last.time, one.mode, threshold)
        if change and change.verdict == "slower":
            raised.append(Alarm(one, change, _edited(one), _control(one, found)))
    return sorted(raised, key=lambda a: a.ratio.median)


def followed(found: Sequence[Series]) -> int:
    """How many series have an earlier run to be compared with."""
    return sum(len(one.points) > 1 for one in found)


def undecided(found: Sequence[Series], threshold: float = THRESHOLD) -> int:
    """How many series with an earlier run are too noisy to tell: the interval leaves both open, that the
    newest is slower by more than ``threshold`` and that it is not, or a time did not converge."""
    changes = [ratio(s.best.time, s.last.time, s.mode, threshold) for s in found if len(s.points) > 1]
    return sum(
        c is None or (c.verdict == "inconclusive" and not (c.converged and c.low >= 1 - threshold))
        for c in changes
    )


def _edited(one: Series) -> bool | None:
    if one.best.source is None or one.last.source is None:
        return None
    return not same_code.same(one.op, one.impl, one.best.source, one.last.source)


def _control(one: Series, found: Sequence[Series]) -> float | None:
    """How much slower all else got between the two runs whose source is known to be the same."""
    ratios = []
    for other in found:
        if other is one or other.device_name != one.device_name:
            continue
        at = {p.run: p for p in other.points}
        before, now = at.get(one.best.run), at.get(one.last.run)
        same = before and now and same_code.same(other.op, other.impl, before.source, now.source)
        if same and now.time.median > 0:
            ratios.append(before.time.median / now.time.median)
    return statistics.median(ratios) if ratios else None
