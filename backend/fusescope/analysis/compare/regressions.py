"""What got slower from run to run: the newest time of each implementation of ours or the user's and case
against its best earlier one, as asv does it over commits."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fusescope.analysis.compare.ratios import ratio
from fusescope.core import naming, same_code
from fusescope.core.records import HEADLINE, Speedup, Time

THRESHOLD = 0.05
"""Slow-down from which on an alarm is raised; the whole interval must lie beyond it."""


@dataclass(frozen=True)
class Point:
    """One run's time. commit: of the project when it ran; source: hash of the kernel's, of a peer the version
    of torch; None where unknown. busy: whether others used the device meanwhile."""

    run: str
    ended: float
    commit: str | None
    time: Time
    source: str | None
    busy: bool = False


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
        """The fastest before the newest, of those that converged on a device of their own where one did."""
        return min(self.points[:-1], key=lambda p: (p.busy or not p.time.converged, p.time.median))

    @property
    def last(self) -> Point:
        return self.points[-1]


@dataclass(frozen=True)
class Change:
    """The newest time of a series against the best earlier one. ratio: best over newest, None where a time is
    not positive. open: why that is no verdict on a slow-down, "" where it is one."""

    ratio: Speedup | None
    open: str = ""

    @property
    def slower(self) -> bool:
        return self.ratio is not None and self.ratio.verdict == "slower" and not self.open


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
            Point(r["run"], r["ended"], r["commit"], r["times"][mode], r["source"], r["busy"])
            for r in by_run.values()
            if mode in r["times"]
        ]
        made.append(Series(*key, mode, tuple(points)))
    return made


def followed(found: Iterable[Series]) -> list[Series]:
    """The series that are judged: of our implementations and the user's, with an earlier run. A peer changes
    with torch and the machine; it says what these did (``Alarm.control``)."""
    return [one for one in found if len(one.points) > 1 and naming.kind(one.impl) != "peer"]


def change(one: Series, threshold: float = THRESHOLD) -> Change:
    """Whether a series with an earlier run is slower by more than ``threshold`` with all of the interval. It
    stays open where the interval leaves both open, where a time is not known well enough for the difference,
    and where others used the device."""
    found = ratio(one.best.time, one.last.time, one.mode, threshold)
    if found is None:
        return Change(None, "a time is not positive")
    if found.verdict in ("same", "faster"):
        return Change(found)
    if busy := _runs(one, lambda point: point.busy):
        return Change(found, f"the machine was busy in {busy}")
    if not found.converged:
        loose = _runs(one, lambda point: not point.time.converged)
        return Change(found, f"sampling did not converge in {loose or 'both runs'}")
    noisy = found.verdict == "inconclusive" and found.low < 1 - threshold
    return Change(found, "the interval is too wide" if noisy else "")


def alarms(found: Sequence[Series], threshold: float = THRESHOLD) -> list[Alarm]:
    """The series that are slower than they were (``change``), the largest slow-down first."""
    judged = changes(found, threshold)
    return [Alarm(one, c.ratio, _edited(one), _control(one, found)) for one, c in judged if c.slower]


def undecided(found: Iterable[Series], threshold: float = THRESHOLD) -> list[tuple[Series, Change]]:
    """The series that may be slower than they were or not, with the reason, the largest slow-down first."""
    return [(one, c) for one, c in changes(found, threshold) if c.open]


def changes(found: Iterable[Series], threshold: float = THRESHOLD) -> list[tuple[Series, Change]]:
    """All that are followed: what raises an alarm, then what is undecided, then the rest; of each the largest
    slow-down first."""
    judged = [(one, change(one, threshold)) for one in followed(found)]
    return sorted(judged, key=lambda pair: (not pair[1].slower, not pair[1].open, _gain(pair[1])))


def _gain(of: Change) -> float:
    return of.ratio.median if of.ratio else 0.0


def _runs(one: Series, holds: Callable[[Point], bool]) -> str:
    """In which of the two runs something holds: "both runs", "the newest run", "the earlier run" or ""."""
    before, now = holds(one.best), holds(one.last)
    return "both runs" if before and now else "the newest run" if now else "the earlier run" * before


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
