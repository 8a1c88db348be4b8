"""From a code to a record: its segments compiled (once, shared), the whole checked against the unfused layer,
then timed in turn.

Codes are measured in groups with the unfused layer among them, so that each speed-up is of pairs taken side
by side. On a GPU a code's time is that of a replayed CUDA graph; the graphs of a group share their memory,
since they are replayed one at a time.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

from fusescope.core import nvml
from fusescope.core.records import Rate, Record, Times, case_key
from fusescope.core.reporter import Reporter
from fusescope.search import runtime
from fusescope.search.measuring import baselines, inputs, segments
from fusescope.search.measuring.candidate import Trial, cause
from fusescope.search.measuring.loader import DEADLINE_S, Loader
from fusescope.search.scheme import codegen
from fusescope.search.scheme.layer import cost
from fusescope.search.scheme.setting import FINAL, OP, Setting

GROUP = 8  # codes sampled together, beside the unfused layer
# a code's turn in a round: two samples of a graph of 1 ms, so ten in the five rounds that a verdict needs
TURN_MS = 2.0
BUDGET_S = 0.02  # of sampling a code, its share of the unfused layer's included
BASELINE_S = 0.5  # of sampling a baseline
SETTLE_S = 2.0  # of calls before the first baselines are sampled on a CPU
FINAL_S = 2.0  # of sampling each of the last few and of the baselines beside them
_PRECISION = 0.01
_DIGITS = {"first": 3, "max_abs": 3, "max_rel": 3, "cosine": 6}
_DOUBTS = 3  # fresh measurements of the ceilings before an alarm stands


class Evaluator:
    """One setting on this device. ``prepare`` once, then ``evaluate`` any number of codes; everything learned
    is recorded.

    seed: of the inputs and of the order of rounds. budget_s: seconds of sampling a code.
    """

    def __init__(self, setting: Setting, reporter: Reporter, seed: int = 0, budget_s: float = BUDGET_S):
        self.setting, self.reporter, self.seed, self.budget_s = setting, reporter, seed, budget_s
        self.key = case_key(OP, setting.case(), setting.dtype, setting.device)
        self.times: dict[str, float] = {}  # ms of the codes that are right, measured here or found as records
        self.pool = None
        self._unfused = None

    def prepare(self, say: Callable[[str], None]) -> None:
        """Inputs, reference, ceilings, our kernels. Raises torch.OutOfMemoryError where the setting does not
        fit the device."""
        import torch

        from fusescope.core import environment
        from fusescope.measure.device import ceilings, device_state

        say("making inputs and the reference")
        if self.setting.cuda:
            torch.cuda.set_device(self.setting.device)
            torch.cuda.init()
            environment.remember_gpu(torch.cuda.current_device())
            self.pool = torch.cuda.graph_pool_handle()
        self.facts = environment.collect(self.setting.device)
        self.reporter.environment(**self.facts)
        with torch.no_grad():
            self.values = inputs.make(self.setting, self.seed)
            self.reference = inputs.reference(self.values)["out"]
        self.allowed = inputs.tolerance(self.setting, range(15), self.reference)
        self.arguments = inputs.arguments(self.values)
        self.segments = segments.Segments(self.setting, self.values)
        self.loader = Loader(self.setting, self.reporter, self.segments)
        self.loader.kernels(say)
        self.cost = cost(range(15), self.setting.sizes(), self.setting.dtype)
        say("measuring what this device can do")
        self.ceilings = ceilings.measure(self.setting.device, (self.setting.dtype,))
        self.reporter.environment(ceilings=self.ceilings)
        try:
            self.state = device_state.reader(self.setting.device)
        except nvml.NvmlError as e:
            self.reporter.log(str(e))
            self.state = lambda: None

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
        known = {impl for k, impl in self.reporter.skip() if k == self.key}
        due = [n for n in names if n not in known]
        self.loader.load(due, say)
        self._group(due, OP, BASELINE_S, say)

    def final(self, codes: list[str], say: Callable[[str], None]) -> dict[str, Any]:
        """The best codes beside all baselines with the full budget: {name: {"ms", "speedups": {baseline:
        Speedup}}}, paired."""
        known = {impl for k, impl in self.reporter.skip() if k == self._key(FINAL)}
        together = list(dict.fromkeys((*codes, *baselines.BASELINES)))
        self.loader.load(together, say)
        return self._group(together, FINAL, FINAL_S, say, known)

    # one group

    def _group(
        self, names: list[str], op: str, budget_s: float, say, recorded: frozenset | set = frozenset()
    ) -> dict:
        """Check these codes and baselines, sample the right ones in turn, record all but the ``recorded``."""
        import torch

        from fusescope.measure import compare

        if not names:
            return {}
        with torch.no_grad():
            trials = [Trial(n) for n in names]
            for t in trials:
                say(t.name)
                self._guarded(t, op, self._check)
            if op == OP and "unfused" not in names:
                trials.append(self._partner())
            found = self._sample(trials, op, budget_s)
        series = {t.name: found[t.name] for t in trials if t.status is None and t.name in found}
        for t in trials:
            if t.name in series and (why := self._alarm(series[t.name])):
                t.fail("error", why)
                del series[t.name]
        base = next((t for t in trials if t.name == "unfused"), None)
        for t in trials:
            if t.name in names and t.name not in recorded:
                self._record(t, op, series, base)
        good = [t.name for t in trials if t.status is None]
        references = [n for n in baselines.BASELINES if n in good]
        if op != FINAL:
            return {}
        paired = {n: {b: compare.speedup(series[b], series[n], self.seed) for b in references} for n in good}
        return {n: {"ms": series[n].time().median, "speedups": paired[n]} for n in good}

    def _check(self, t: Trial) -> None:
        from fusescope.measure.checking import check
        from fusescope.measure.timing import timer

        make = self._maker(t.name)
        t.run, out, t.first_ms = timer.first_call(make, self.setting.device)
        judgement = check.compare(out, self.reference, self.allowed)
        t.accuracy = judgement.accuracy
        if judgement.reason:
            t.fail("wrong", f"{judgement.reason}; each segment on its own is right")

    def _sample(self, trials: list[Trial], op: str, budget_s: float) -> dict:
        from fusescope.measure import compare

        if not self.setting.cuda and any(t.name in baselines.BASELINES and t.sampler is None for t in trials):
            self._settle([t for t in trials if t.status is None], op)
        samplers = {}
        for t in trials:
            if t.status is None:
                t.sampler = t.sampler or self._guarded(t, op, lambda t: self._sampler(t, op))
                if t.sampler:
                    samplers[t.name] = t.sampler
        if not samplers:
            return {}

        def turn(name: str) -> None:
            self.reporter.check()
            self.reporter.doing(self._key(op), name, DEADLINE_S)

        stop = compare.Stop(_PRECISION, 10, min(0.2, budget_s / 3), budget_s * len(samplers))
        turn_ms = TURN_MS if budget_s < BASELINE_S else compare.TURN_MS
        found = compare.rounds(samplers, stop, self.seed, turn, self.state, turn_ms)
        for t in trials:
            if t.name in found and found[t.name].failure is not None:
                self._book(t, found[t.name].failure)
        return found

    def _settle(self, trials: list[Trial], op: str) -> None:
        """Calls in turn before the samplers look how long one takes: on a CPU the first calls after checking
        and compiling find cold caches and sleeping threads and may take many times as long, and nothing was
        sampled before that would have woken them."""

        def call(t: Trial) -> None:
            self._guarded(t, op, lambda t: t.run())

        settle([lambda t=t: call(t) for t in trials])

    def _sampler(self, t: Trial, op: str):
        """A code's graph is made as long as those before say; baselines and finalists find out for
        themselves."""
        alike = (
            statistics.median(self.times.values())
            if self.times and op == OP and t.name not in baselines.BASELINES
            else None
        )
        return runtime.sampler(t.run, self.setting.device, self.pool, alike)

    def _record(self, t: Trial, op: str, series: dict, base: Trial | None) -> None:
        from fusescope.measure import compare
        from fusescope.measure.device import device_state

        s = self.setting
        common = {
            "op": op,
            "impl": t.name,
            "case": s.case(),
            "dtype": s.dtype,
            "device": s.device,
            "accuracy": t.accuracy,
        }
        if t.name not in baselines.BASELINES:
            common["source_hash"] = segments.source_hash(codegen.generate(t.name, s))
        if t.status is not None:
            self.reporter.record(Record(status=t.status, reason=t.reason, **common))
            return
        mine = series[t.name]
        time = mine.time()
        paired = compare.speedup(series[base.name], mine, self.seed) if base and base.name in series else None
        seconds = time.median / 1e3
        self.reporter.samples(self._key(op), t.name, mine.mode, [_sample(ms) for ms in mine.flat])
        record = Record(
            status="ok",
            time_ms=Times(first=t.first_ms, **{mine.mode: time}),
            speedup=paired,
            tflops=Rate(self.cost.flop_effective / seconds / 1e12, self.cost.flop_executed / seconds / 1e12),
            throttled=device_state.throttled(mine.states),
            backend=self._words(t.name),
            **common,
        )
        record = Record.from_json(_short(record.to_json()))
        self.reporter.record(record)
        if op == OP and t.name not in baselines.BASELINES:
            self.times[t.name] = record.time_of(mine.mode).median

    # pieces

    def _partner(self) -> Trial:
        """The unfused layer, whose graph is captured once and kept."""
        if self._unfused is None:
            self._unfused = Trial("unfused")
            self._guarded(self._unfused, OP, self._check)
        return self._unfused

    def _maker(self, name: str) -> Callable[[], Callable[[], Any]]:
        if name in baselines.BASELINES:
            return lambda: baselines.make(name, self.setting, self.values, self.segments)
        layer = segments.scheme(name, self.setting, self.segments)
        arguments = self.arguments
        return lambda: lambda: layer(**arguments)

    def _words(self, name: str) -> str:
        return baselines.BASELINES[name] if name in baselines.BASELINES else codegen.words(name, self.setting)

    def _guarded(self, t: Trial, op: str, work: Callable[[Trial], Any]) -> Any:
        """What ``work`` gives; None where it failed, which is the trial's status then."""
        if t.status is not None:
            return None
        self.reporter.check()
        self.reporter.doing(self._key(op), t.name, DEADLINE_S)
        try:
            return work(t)
        except Exception as e:
            self._book(t, e)

    def _book(self, t: Trial, e: Exception) -> None:
        t.fail(*cause(e))

    def _alarm(self, series) -> str | None:
        """A time that the ceilings forbid, unless ceilings measured afresh allow it."""
        from fusescope.measure.checking import alarm
        from fusescope.measure.device import ceilings

        cache = self.facts["l2_bytes"] if self.setting.cuda else self.facts["llc_bytes"]
        for again in range(_DOUBTS + 1):
            bound = alarm.bound_ms(self.cost, self.setting.dtype, False, self.ceilings, cache)
            why = alarm.impossible(series.time().median, series.mode, bound)
            if why is None or again == _DOUBTS:
                return why
            self.reporter.log(f"{why}; measuring the ceilings again")
            self.ceilings = ceilings.measure(self.setting.device, (self.setting.dtype,), refresh=True)
            self.reporter.environment(ceilings=self.ceilings)
        return None

    def _key(self, op: str) -> str:
        return (
            self.key
            if op == OP
            else case_key(op, self.setting.case(), self.setting.dtype, self.setting.device)
        )


def settle(calls: list[Callable[[], Any]], clock: Callable[[], float] = perf_counter) -> None:
    """Call all in turn until three rounds on end were no faster than the fastest before them, or SETTLE_S
    seconds have passed."""
    begun, fastest, idle = clock(), float("inf"), 0
    while calls and idle < 3 and clock() - begun < SETTLE_S:
        start = clock()
        for call in calls:
            call()
        took = clock() - start
        idle = idle + 1 if took > 0.97 * fastest else 0
        fastest = min(fastest, took)


def _sample(ms: float) -> float:
    """A sample in steps of at most half a thousandth of it, which is the step of the GPU's clock in samples
    of a millisecond."""
    return float(f"{ms:.{4 if f'{ms:e}' >= '2' else 5}g}")


def _short(value: Any, name: str = "") -> Any:
    """JSON values with numbers of five digits, below any clock's resolution, or as _DIGITS says: thousands of
    records are half the size."""
    if isinstance(value, dict):
        return {k: _short(v, k) for k, v in value.items()}
    return float(f"{value:.{_DIGITS.get(name, 5)}g}") if isinstance(value, float) else value
