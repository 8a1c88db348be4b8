"""Where a comparison is in its plan: what each part has taken, what is left, and what the next job's estimate
learns."""

from __future__ import annotations

import math
import sys
import time
from collections import defaultdict
from collections.abc import Sequence

from fusescope.analysis.estimate import Phase, remembered
from fusescope.core.machine import load

_OVERDUE = 0.2  # of what an overdue part has taken is expected to come still
_FEW_S = 0.05  # of a thread that say nothing of how busy the CPUs were
_DOUBT_S = 2.0  # weight of the plan against what was measured of a stage, in seconds


class Pace:
    """Follows a plan; every moment belongs to one part of one phase. started: when the process was given the
    job (time.monotonic()), None where it was not started for it."""

    def __init__(self, phases: Sequence[Phase], started: float | None = None):
        self.phases = phases
        self._spent: list[dict[str, float]] = [defaultdict(float) for _ in phases]
        # seconds that this thread had a CPU, and waited for one, by phase and part
        self._ran: list[dict[str, list[float]]] = [defaultdict(lambda: [0.0, 0.0]) for _ in phases]
        self._compiled: list[set[str]] = [set() for _ in phases]  # parts that compilers worked for
        self._compilations = _compilations()
        self._at, self._part = 0, next(iter(phases[0].parts))
        self._skipped = {0} if started is None else set()  # phases of which nothing is learnt
        self._shares: dict[int, float] = {}
        self._since, self._thread = time.monotonic() if started is None else started, load.thread_s()

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

    def waited(self) -> None:
        """What has passed since the phase began was spent waiting for others: it belongs to no part."""
        self._since, self._thread = time.monotonic(), load.thread_s()

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

    def learnt(self, numbers: Sequence[int]) -> dict[str, float]:
        """What phases that are done teach: {key: seconds}, as on idle CPUs."""
        self._book()
        found: dict[str, float] = {}
        for number in numbers:
            if number not in self._skipped:
                busy = {name: _busy(*ran) for name, ran in self._ran[number].items()}
                found |= remembered(self.phases[number], self._spent[number], busy, self._compiled[number])
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
        now, thread = time.monotonic(), load.thread_s()
        self._spent[self._at][self._part] += now - self._since
        ran = self._ran[self._at][self._part]
        ran[:] = [so_far + new - old for so_far, new, old in zip(ran, thread, self._thread, strict=True)]
        self._since, self._thread = now, thread
        if (compilations := _compilations()) > self._compilations:
            self._compiled[self._at].add(self._part)
            self._compilations = compilations


def _compilations() -> int:
    """How many graphs torch's compiler has compiled in this process, without those found in its cache."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    counts = dynamo.counters["inductor"] if dynamo else {}
    return counts.get("fxgraph_cache_miss", 0) + counts.get("fxgraph_cache_bypass", 0)


def _busy(had_s: float, waited_s: float) -> float:
    """How many times as long a thread took that had a CPU so long and waited for one so long. What it waits
    for otherwise, a compiler or other threads, meets the same others."""
    if had_s + waited_s < _FEW_S:
        return 1.0
    return (had_s + waited_s) / max(had_s, 1e-9)
