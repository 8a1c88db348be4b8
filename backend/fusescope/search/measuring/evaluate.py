"""From a code to a record: its segments compiled (once, shared), the whole checked against the unfused layer
in float64, then timed in turn.

Codes are measured in groups with the unfused layer among them, so that each speed-up is of pairs taken side
by side.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any

from fusescope.core.records import case_key
from fusescope.core.reporter import Reporter
from fusescope.measure import compare, machine, result
from fusescope.measure.candidate import Candidate, alive, candidates
from fusescope.measure.checking.alarm import Alarm
from fusescope.search.learning.strategy import BATCH
from fusescope.search.measuring import baselines
from fusescope.search.measuring.group import TURN_MS, Group
from fusescope.search.measuring.loader import Loader
from fusescope.search.measuring.subject import Schemes
from fusescope.search.scheme.setting import FINAL, OP, Setting

GROUP = 8  # codes sampled together, along with the unfused layer
BUDGET_S = 0.02  # of sampling a code, its share of the unfused layer's included
BASELINE_S = 0.5  # of sampling a baseline; in proportion less where a code has less than BUDGET_S
FINAL_S = 2.0  # of sampling each of the last few and of the baselines along with them; likewise


class Evaluator:
    """One setting on this device. ``prepare`` once, then ``evaluate`` any number of codes; everything learned
    is recorded.

    seed: of the inputs and of the order of rounds. budget_s: seconds of sampling a code.
    """

    def __init__(self, setting: Setting, reporter: Reporter, seed: int = 0, budget_s: float = BUDGET_S):
        self.setting, self.reporter, self.seed, self.budget_s = setting, reporter, seed, budget_s
        self.key = self._key(OP)
        self.times: dict[str, float] = {}  # ms of the codes that are correct, measured here
        self.pool = None
        self._groups: dict[tuple, Group] = {}

    def prepare(self, say: Callable[[str], None]) -> None:
        """Inputs, reference, ceilings, our kernels. Raises torch.OutOfMemoryError where the setting does not
        fit the device."""
        import torch

        setting = self.setting
        say("making inputs and the reference")
        self.facts = machine.ready(setting.device)
        self.pool = torch.cuda.graph_pool_handle() if setting.cuda else None
        self.reporter.environment(**self.facts)
        with torch.no_grad():
            self.subject = Schemes(setting, self.seed)
        self.segments = self.subject.segments
        self.loader = Loader(setting, self.reporter, self.segments)
        self.loader.kernels(say)
        say("measuring what this device can do")
        self.alarm = Alarm(setting.device, setting.dtype, machine.cache_bytes(self.facts), self.reporter)

    at_once = BATCH  # codes that a search asks for at a time

    def load(self, names: list[str], say: Callable[[str], None]) -> None:
        """Every segment that these codes and baselines need, compiled ahead."""
        self.loader.load(names, say)

    def evaluate(
        self, codes: Iterable[str], say: Callable[[str], None] = lambda text: None
    ) -> dict[str, float | None]:
        """Milliseconds of each canonical code, None where it failed; each has a record then."""
        codes = list(codes)
        self.loader.load(codes, say)
        for start in range(0, len(codes), GROUP):
            self._group(codes[start : start + GROUP], OP, self.budget_s, say)
        return {c: self.times.get(c) for c in codes}

    def baselines(
        self, say: Callable[[str], None], names: Iterable[str] = tuple(baselines.BASELINES)
    ) -> None:
        """A record of every baseline that has none."""
        due = [n for n in names if n not in self._recorded(OP)]
        self.loader.load(due, say)
        self._group(due, OP, self._share(BASELINE_S), say)

    def final(self, codes: list[str], say: Callable[[str], None]) -> dict[str, Any]:
        """The best codes along with all baselines with the full budget: {name: {"ms", "speedups": {baseline:
        Speedup}}}, paired."""
        recorded = self._recorded(FINAL)
        together = list(dict.fromkeys((*codes, *baselines.BASELINES)))
        self.loader.load(together, say)
        correct = self._group(together, FINAL, self._share(FINAL_S), say, recorded)
        series = {c.name: next(iter(c.series.values())) for c in correct}
        timed = [n for n in baselines.BASELINES if n in series]
        return {
            name: {
                "ms": mine.time().median,
                "speedups": {b: compare.speedup(series[b], mine) for b in timed},
            }
            for name, mine in series.items()
        }

    def _share(self, seconds: float) -> float:
        return seconds * min(1.0, self.budget_s / BUDGET_S)

    def group(self, op: str, budget_s: float, kind: type[Group] = Group) -> Group:
        """The trial of all groups of one op and budget."""
        if (op, budget_s) not in self._groups:
            group = kind(op, self.setting, self.subject, self.reporter, self.seed, budget_s, self.pool)
            group.turn_ms = TURN_MS if budget_s < BASELINE_S else compare.TURN_MS
            self._groups[op, budget_s] = group
        return self._groups[op, budget_s]

    def _group(
        self, names: list[str], op: str, budget_s: float, say, recorded: Iterable[str] = ()
    ) -> list[Candidate]:
        """Check these codes and baselines, sample the correct ones in turn, record all but the ``recorded``;
        the correct ones."""
        import torch

        if not names:
            return []
        group, device = self.group(op, budget_s), self.setting.device
        several = candidates(self.subject, names, device, self.facts["arch"])
        group.check(several, say)
        if op == OP and "unfused" not in names:
            several.append(self._partner(group))
        if op == OP and self.times:
            group.expected_ms = statistics.median(self.times.values())
        with torch.no_grad():
            group.sample_all(several, any(c.info.kind == "baseline" and not c.series for c in several))
        cost = self.subject.cost(group.values, self.setting.dtype)
        for c in alive(several):
            if why := self.alarm.look(c.name, c.times(), cost):
                c.fail("error", why)
        unfused = next((c for c in several if c.name == "unfused"), None)
        for c in several:
            if c.name in names and c.name not in recorded:
                self._record(group, c, unfused, cost)
        return [c for c in alive(several) if c.name in names]

    def _record(self, group: Group, c: Candidate, unfused: Candidate | None, cost) -> None:
        for mode, series in c.series.items():
            self.reporter.samples(group.key, c.name, mode, [_sample(ms) for ms in series.flat])
        record = result.record(group.spec, group.values, c, unfused, cost, self.facts)
        record = self.subject.complete(group, c, record)
        self.reporter.record(record)
        if record.op == OP and c.info.kind == "scheme" and record.status == "ok":
            self.times[c.name] = record.ms

    def _partner(self, group: Group) -> Candidate:
        """The unfused layer, whose graph is captured once and kept."""
        if group.kept is None:
            (group.kept,) = candidates(self.subject, ["unfused"], self.setting.device, None)
            group.check([group.kept], lambda text: None)
        return group.kept

    def _recorded(self, op: str) -> set[str]:
        return {impl for key, impl in self.reporter.skip() if key == self._key(op)}

    def _key(self, op: str) -> str:
        return case_key(op, self.setting.case(), self.setting.dtype, self.setting.device)


def _sample(ms: float) -> float:
    """A sample in steps of at most half a thousandth of it, which is the step of the GPU's clock in samples
    of a millisecond."""
    return float(f"{ms:.{4 if f'{ms:e}' >= '2' else 5}g}")
