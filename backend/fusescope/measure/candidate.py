"""One implementation on one case, on the way to its record."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from fusescope.core.records import Accuracy, Time
from fusescope.measure import failures
from fusescope.measure.checking import settings
from fusescope.measure.compare import Series
from fusescope.measure.timing.launches import Launch
from fusescope.ops.base import Implementation


@dataclass
class Candidate:
    """What is known of an implementation so far. ``status`` stays None while it may be timed."""

    info: Implementation
    run: Callable[[], Any] | None = None
    first_ms: float | None = None
    accuracy: Accuracy | None = None
    status: str | None = None
    reason: str | None = None
    series: dict[str, Series] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)
    clocks: dict[str, list[float | None]] = field(default_factory=dict)  # SM clock, MHz by mode, one per turn
    # settings of the process that it changed, with "before → after" (checking/settings.py)
    changed: dict[str, str] = field(default_factory=dict)
    compared: int = 0  # results of timed calls that were compared and right

    @property
    def name(self) -> str:
        return self.info.name

    def times(self) -> dict[str, Time]:
        """By mode."""
        return {mode: series.time() for mode, series in self.series.items()}

    def fail(self, status: str, reason: str) -> None:
        self.status, self.reason, self.run = status, reason, None
        self.series.clear()

    def attempt(self, work: Callable[[], Any]) -> Any:
        """What ``work`` returns; None where it raised, which is then the status (see failures.cause)."""
        try:
            with failures.contained(), settings.kept(self.changed):
                return work()
        except Exception as e:
            self.fail(*failures.cause(e))


def alive(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those that may still be timed."""
    return [c for c in candidates if c.status is None]


def candidates(subject, names: Iterable[str], device: str, arch: str | None) -> list[Candidate]:
    """One Candidate per name, in that order, with the reason of those that cannot run on the device."""
    listed = {i.name: i for i in subject.implementations(device, arch)}
    return [Candidate(dataclasses.replace(listed.get(n) or subject.describe(n, device))) for n in names]
