"""Groups of schemes, each sampled together by measure's trial."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from fusescope.core.records import BenchSpec
from fusescope.core.reporter import Reporter
from fusescope.measure import compare
from fusescope.measure.candidate import Candidate, alive
from fusescope.measure.timing import timer
from fusescope.measure.trial import Trial
from fusescope.search import runtime
from fusescope.search.measuring.loader import DEADLINE_S
from fusescope.search.scheme.setting import Setting

# a scheme's turn in a round: two samples of a graph of 1 ms, so ten in the five rounds that a verdict needs
TURN_MS = 2.0
SETTLE_S = 2.0  # of calls before the first samples on a CPU
_PRECISION = 0.01


class Group(Trial):
    """A trial whose graphs share the memory of one ``pool``, since they are replayed one at a time.

    budget_s: of sampling one scheme. expected_ms: about what a scheme takes, which saves a pilot graph.
    ``kept``: the candidate of all groups, whose sampler is made once.
    """

    kept: Candidate | None = None
    _kept_sampler: timer.Sampler | None = None

    def __init__(
        self, op: str, setting: Setting, subject, reporter: Reporter, seed: int, budget_s: float, pool=None
    ):
        spec = BenchSpec(
            op,
            impls=(),
            cases=(),
            baseline="unfused",
            dtype=setting.dtype,
            device=setting.device,
            cache="warm",
            budget_s=budget_s,
            min_s=min(0.2, budget_s / 3),
            precision=_PRECISION,
            seed=seed,
            case_deadline_s=DEADLINE_S,
        )
        super().__init__(spec, subject, setting.case(), reporter)
        self.pool, self.expected_ms = pool, None

    def sample_all(self, several: list[Candidate], settle_first: bool = False) -> None:
        """Sample in the one mode that a scheme is timed in: its own time as a replayed graph on a GPU, wall
        time on the CPU."""
        if settle_first and not self.cuda:
            settle([lambda c=c: c.run and c.attempt(c.run) for c in alive(several)])
        self.sample(several, "graph" if self.cuda else "eager", None, None)

    def _stop(self, count: int) -> compare.Stop:
        return compare.Stop.of(self.spec, count)

    def _sampler(self, c: Candidate, mode: str, flush, l2_bytes: int | None) -> timer.Sampler:
        if c is self.kept and self._kept_sampler:
            return self._kept_sampler
        expected = self.expected_ms if c.info.kind == "scheme" else None
        sampler = runtime.sampler(c.run, self.spec.device, self.pool, expected)
        if c is self.kept:
            self._kept_sampler = sampler
        return sampler


def settle(calls: list[Callable[[], Any]], clock: Callable[[], float] = perf_counter) -> None:
    """Call all in turn until three rounds on end were no faster than the fastest before them, or SETTLE_S
    seconds have passed: on a CPU the first calls after compiling find cold caches and sleeping threads."""
    begun, fastest, idle = clock(), float("inf"), 0
    while calls and idle < 3 and clock() - begun < SETTLE_S:
        start = clock()
        for call in calls:
            call()
        took = clock() - start
        idle = idle + 1 if took > 0.97 * fastest else 0
        fastest = min(fastest, took)
