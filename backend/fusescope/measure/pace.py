"""Where a comparison is in its plan: what each part has taken, what is left, and what the next job's estimate
learns."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from fusescope.analysis.estimate import Past, Phase, remembered

_OVERDUE = 0.2  # of what an overdue part has taken is expected to come still
_FRESH_S = 30.0  # an older process was not started for the comparison, or has waited for its device
_begun: list[int] = []  # the process, once it has begun a comparison
_DOUBT_S = 2.0  # weight of the plan against what was measured of a stage, in seconds


class Pace:
    """Follows a plan; every moment belongs to one part of one phase."""

    def __init__(self, phases: Sequence[Phase], age_s: float | None = None):
        self.phases = phases
        self._spent: list[dict[str, float]] = [defaultdict(float) for _ in phases]
        self._at, self._part = 0, next(iter(phases[0].parts))
        age_s = _age_s() if age_s is None else age_s
        self._skipped = set() if age_s < _FRESH_S else {0}  # phases of which nothing is learnt
        self._shares: dict[int, float] = {}
        self._since = time.monotonic() - (age_s if age_s < _FRESH_S else 0.0)

    def enter(self, number: int) -> Phase:
        """Phase ``number`` begins; whatever went before is done."""
        self._book()
        self._at, self._part = number, next(iter(self.phases[number].parts))
        return self.phases[number]

    def skip(self, number: int) -> None:
        """A phase is not gone through, because its records are there."""
        self._skipped.add(number)

    def part(self, name: str) -> None:
        """What is done from now on, where the phase has a part of that name."""
        if name in self.phases[self._at].parts and name != self._part:
            self._book()
            self._part = name

    def advanced(self, share: float) -> None:
        """How much of the present phase is done, 0 … 1, where its work counts itself."""
        self._shares[self._at] = share

    def left_s(self) -> float:
        """Seconds until the end: what the plan expects, corrected by how long the same stages have taken so
        far."""
        self._book()
        factors = self._factors()
        left = 0.0
        for number in range(self._at, len(self.phases)):
            phase, spent = self.phases[number], self._spent[number]
            if number in self._skipped:
                continue
            for name, part in phase.parts.items():
                whole = part.seconds * factors[phase.stage]
                rest = whole - spent.get(name, 0.0)
                if number in self._shares:
                    rest = (1 - self._shares[number]) * whole
                elif (number, name) == (self._at, self._part):
                    rest = max(rest, _OVERDUE * spent[name])
                left += max(0.0, rest)
        return left

    def learnt(self, numbers: Sequence[int], past: Past, busy: float = 1.0) -> dict[str, float]:
        """What phases that are done teach: {key: seconds}; ``busy`` as in Facts."""
        self._book()
        found: dict[str, float] = {}
        for number in numbers:
            if number not in self._skipped:
                found |= remembered(self.phases[number], self._spent[number], past, busy)
        return found

    def _factors(self) -> dict[str, float]:
        """How much longer than expected each stage has taken in the phases that are done."""
        took: dict[str, float] = defaultdict(float)
        expected: dict[str, float] = defaultdict(float)
        for number in range(self._at):
            if number not in self._skipped:
                took[self.phases[number].stage] += sum(self._spent[number].values())
                expected[self.phases[number].stage] += self.phases[number].seconds
        return defaultdict(
            lambda: 1.0,
            {s: (took[s] + _DOUBT_S) / (expected[s] + _DOUBT_S) for s in took if math.isfinite(expected[s])},
        )

    def _book(self) -> None:
        now = time.monotonic()
        self._spent[self._at][self._part] += now - self._since
        self._since = now


def _age_s() -> float:
    """Seconds since this process was started, for its first comparison: importing libraries belongs to the
    start of a job. Infinite for further ones."""
    if _begun == [os.getpid()]:
        return math.inf
    _begun[:] = [os.getpid()]  # not a forked child's
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
