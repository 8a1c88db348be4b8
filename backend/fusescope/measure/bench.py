"""A comparison from specification to records: every implementation on every case, checked, then sampled in
turn.

1  Correct first: no latency without a correct result (check.py).
2  First call, eager and graph times are kept apart (timer.py, graph.py); on the CPU there are no graphs.
3  Cold and warm caches, both.
4  Sampling stops on noise or budget, and says which (compare.py, analysis/statistics.py).
5  Implementations are sampled in turn, and their buffers move between rounds (placement.py). A speed-up is
   the ratio of the medians shown, in an interval over paired rounds; what did not converge is inconclusive.
   Several processes (jobs/several.py) give one that holds for a further process (joined.py).
6  The device's state is kept for each round (device_state.py): samples taken while others used it are marked,
   not dropped; so is a clock that differs from the baseline's. Results of timed calls are compared again
   (watch.py).
7  A time below what the hardware allows is an error (alarm.py, ceilings.py).
8  FLOP and bytes come from the operator's cost model.
9  Out of memory, unsupported and errors are records with their reason; crashes and timeouts are recorded by
   the worker.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from fusescope.analysis import estimate
from fusescope.core.machine import environment, load, stage_times
from fusescope.core.records import BenchSpec
from fusescope.core.reporter import Reporter
from fusescope.kernels import build
from fusescope.measure import failures, machine, result
from fusescope.measure.candidate import Candidate, candidates
from fusescope.measure.checking import settings
from fusescope.measure.checking.alarm import Alarm
from fusescope.measure.pace import Pace
from fusescope.measure.subject import Operator
from fusescope.measure.timing.timer import Flush
from fusescope.measure.trial import Trial

PROFILED = "FUSESCOPE_PROFILED"
"""Set by whoever wraps the worker in a profiler: then nothing is timed, because such times are no
latencies."""

_PROFILERS = (
    PROFILED,
    "NSYS_PROFILING_SESSION_ID",
    "NV_NSIGHT_INJECTION_TRANSPORT_TYPE",
    "CUDA_INJECTION64_PATH",
)  # nsys, ncu, CUPTI

_CALLS_UNDER_A_PROFILER = 5
_EVERY_S = 1.0  # between two words of progress while sampling
_BUILD, _CEILINGS, _CASES = 1, 2, 3  # phases of the plan (analysis/estimate.py)


def run(spec: BenchSpec, reporter: Reporter) -> None:
    """Measure ``spec`` and say everything to ``reporter``: a record per implementation and case, as soon as
    the case is done.

    Raises ValueError for names, cases or devices that do not exist, Cancelled when a stop was requested, and
    CUDA errors that leave the process unable to go on (the next process resumes by ``reporter.skip()``).
    """
    Bench(spec, reporter).run()


class Bench:
    """One comparison on the way: facts of the machine, ceilings, progress. subject: what is measured
    (default: the operator named)."""

    trial = Trial

    def __init__(self, spec: BenchSpec, reporter: Reporter, subject: Any = None):
        self.spec, self.reporter = spec, reporter
        self.subject = subject or Operator(spec.op)
        if spec.dtype not in self.subject.dtypes:
            raise ValueError(f"{spec.op} takes {', '.join(self.subject.dtypes)}, not {spec.dtype!r}")
        if spec.cache not in ("warm", "cold", "both"):
            raise ValueError(f"cache is warm, cold or both, not {spec.cache!r}")
        self.cases = [self.subject.validate(c) for c in spec.cases]
        self.names = list(dict.fromkeys((*spec.impls, spec.baseline)))
        for name in self.names:
            self.subject.describe(name, spec.device)
        self.modes = estimate.modes(spec)
        self.done, self.total = 0, len(self.cases) * len(self.names) * (1 + len(self.modes))
        self.past = stage_times.read()
        self.pace = Pace(self._plan(), stage_times.started())
        self.said_at = -math.inf

    def _plan(self) -> list[estimate.Phase]:
        spec, subject = self.spec, self.subject
        builds = any(subject.describe(n, spec.device).kind == "ours" for n in self.names)
        facts = estimate.Facts(
            environment.device_name(spec.device),
            [subject.cost(case, spec.dtype).size for case in self.cases],
            {n: subject.compile_seconds((n,), spec.device) for n in self.names},
            build.seconds_missing(spec.device, families=subject.families) if builds else 0.0,
            subject.reference_s,
            load.crowding(),
            {n for n in self.names if subject.skips(n)},
        )
        return estimate.plan(dataclasses.replace(spec, cases=tuple(self.cases)), facts, self.past)

    def run(self) -> None:
        with failures.noticing_ctrl_c():
            self._run()

    def _run(self) -> None:
        spec, device = self.spec, self.spec.device
        self._progress("starting")
        self.load = load.Load()
        self.facts = machine.ready(device)
        infos = [c.info for c in candidates(self.subject, self.names, device, self.facts["arch"])]
        sources = {i.name: i.source_hash for i in infos if i.source_hash}
        self.reporter.environment(**self.facts, sources=sources)
        self.unbuilt = None
        if any(i.kind == "ours" and not i.reason for i in infos):
            self.pace.enter(_BUILD)
            self._progress("loading the kernels")
            self.unbuilt = machine.load_kernels(device, self.reporter, self._compiling, self.subject.families)
        if any(os.environ.get(name) for name in _PROFILERS):
            return self._under_a_profiler()
        self.pace.enter(_CEILINGS)
        self._progress("measuring what this device can do")
        self.cache_bytes = machine.cache_bytes(self.facts)
        self.alarm = Alarm(device, spec.dtype, self.cache_bytes, self.reporter)
        self.flush = Flush(device, self.cache_bytes) if spec.cache != "warm" else None
        self.idle = machine.Idle(device, self.load, spec.wait_idle_s, self.reporter)
        for number, values in enumerate(self.cases):
            self._case(number, values)
        self.reporter.progress(self.total, self.total, "done", 0.0)

    def _compiling(self, done: int, total: int, what: str) -> None:
        self.pace.advanced(done / total)
        self._progress(f"compiling {what}, {done} of {total}")

    def _waiting(self, text: str) -> None:
        self.reporter.check()
        self.said_at = time.monotonic()  # how long others keep it busy is not known
        self.reporter.progress(self.done, self.total, f"waiting for an idle machine: {text}")

    def _case(self, number: int, values: Mapping[str, Any]) -> None:
        reporter, spec = self.reporter, self.spec
        trial = self.trial(spec, self.subject, values, reporter, self.unbuilt)
        trial.part = self.pace.part
        first = _CASES + number * (2 + len(self.modes))  # the first of the case's phases
        trial.cpus = self.load
        finished = {impl: status for (key, impl), status in reporter.statuses().items() if key == trial.key}
        due = [n for n in self.names if n not in finished]
        share = len(self.names) * (1 + len(self.modes))
        self.done = number * share
        if not due:
            self.done += share
            for phase in range(first, first + 2 + len(self.modes)):
                self.pace.skip(phase)
            return self._progress(f"case {number + 1} has its records already")
        together = list(due)
        if finished.get(spec.baseline) == "ok":
            together.append(spec.baseline)  # a partner again, without a second record
        several = candidates(self.subject, together, spec.device, self.facts["arch"])
        where = f"case {number + 1} of {len(self.cases)}: "
        self.pace.enter(first)
        trial.check(several, lambda text: self._progress(where + text))
        self.done += len(together)
        for place, mode in enumerate(self.modes, 1):
            self.pace.enter(first + place)
            self.idle.wait(self._waiting)
            self.pace.waited()
            what = f"{where}sampling {mode.replace('_', ', ')}"
            self._progress(what)
            trial.round = partial(self._round, what)
            trial.sample(several, mode, self.flush, self.cache_bytes)
            self.done += len(together)
        self.pace.enter(first + len(self.modes) + 1)
        self._progress(f"{where}writing its records")
        for c in several:
            if c.status is None:
                trial.inspect(c)
        self._emit(trial, several, due)
        self.done = (number + 1) * share
        trial.inputs = None
        del several
        self.subject.end()
        if spec.device.startswith("cuda"):
            torch.cuda.empty_cache()
        begun = 0 if number == 0 else first
        after = first + len(self.modes) + 2
        stage_times.note(self.pace.learnt(range(begun, after)))

    def _emit(self, trial: Trial, several: list[Candidate], due: list[str]) -> None:
        costs = {c.name: self.subject.cost(trial.values, self.spec.dtype, c.name) for c in several}
        baseline = next((c for c in several if c.name == self.spec.baseline), None)
        if baseline is None or baseline.status is not None:
            why = (
                f"{baseline.status}: {baseline.reason}"
                if baseline
                else "no partner any more, as its record says"
            )
            self.reporter.log(f"no speed-ups for this case: the baseline {self.spec.baseline} is {why}")
        for c in several:
            if c.status is None and not c.series:
                c.fail("error", "no mode could be measured; the log says why")
            if c.status is None and (why := self.alarm.look(c.name, c.times(), costs[c.name])):
                c.fail("error", why)
        for c in several:
            if c.name not in due:
                continue
            if changed := settings.sentence(c.changed):
                self.reporter.log(f"{c.name} {changed}")
            for mode, series in c.series.items():
                # seven digits: beyond any clock's resolution, at half the size on disk
                digits = [float(f"{ms:.7g}") for ms in series.flat]
                self.reporter.samples(trial.key, c.name, mode, digits, series.states or None)
            record = result.record(self.spec, trial.values, c, baseline, costs[c.name], self.facts)
            self.reporter.record(self.subject.complete(trial, c, record))

    def _under_a_profiler(self) -> None:
        """Check and call a few times, for the profiler to see; no record, because these are no latencies."""
        for values in self.cases:
            trial = self.trial(self.spec, self.subject, values, self.reporter, self.unbuilt)
            several = candidates(self.subject, self.names, self.spec.device, self.facts["arch"])
            trial.check(several, self._progress)
            for c in several:
                for _ in range(_CALLS_UNDER_A_PROFILER if c.status is None else 0):
                    c.run()
                said = f"{c.name} is {c.status or 'correct'}; {c.reason or 'not timed'}"
                self.reporter.log(f"under a profiler: {said}")
        if self.spec.device.startswith("cuda"):
            torch.cuda.synchronize()

    def _round(self, what: str, number: int) -> None:
        if time.monotonic() - self.said_at >= _EVERY_S:
            self._progress(f"{what}, round {number}")

    def _progress(self, message: str) -> None:
        self.said_at = time.monotonic()
        self.reporter.progress(self.done, self.total, message, self.pace.left_s())
