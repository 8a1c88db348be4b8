"""One case of a comparison: check every implementation, then sample the correct ones together, mode by mode.

What is measured is a ``Subject`` (subject.py): an operator, a model, a fusion scheme.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from fusescope.analysis.accuracy.sums import worse
from fusescope.core.errors import Unsupported
from fusescope.core.machine import load, nvml
from fusescope.core.records import BenchSpec, case_key
from fusescope.core.reporter import Reporter
from fusescope.measure import compare, failures
from fusescope.measure.candidate import Candidate, alive
from fusescope.measure.checking.check import Case
from fusescope.measure.checking.timed import Timed, Values
from fusescope.measure.checking.watch import Watched
from fusescope.measure.device import device_state
from fusescope.measure.timing import graph, launches, timer
from fusescope.measure.timing.placement import Placement

REFUSALS = (Unsupported, ValueError, TypeError, NotImplementedError, AssertionError)
"""What a user's function or a peer raises to say that it does not take strided inputs: a refusal, not a wrong
result."""

REFERENCE = "reference"
Step = Callable[[str], None]
_SETS_S = 10.0  # seconds that making the rotating sets of one implementation may take


class Trial:
    """One case: ``values`` of ``subject`` on ``spec.device``. unbuilt: why our kernels could not be built, or
    None."""

    turn_ms = timer.TURN_MS  # of an implementation in a round
    part: Step = staticmethod(lambda name: None)  # told what begins: an implementation, "reference"
    round: Callable[[int], None] = staticmethod(lambda number: None)  # told of each round

    def __init__(
        self,
        spec: BenchSpec,
        subject,
        values: Mapping[str, Any],
        reporter: Reporter,
        unbuilt: str | None = None,
    ):
        self.spec, self.subject, self.values = spec, subject, values
        self.reporter, self.unbuilt = reporter, unbuilt
        self.key = case_key(spec.op, values, spec.dtype, spec.device)
        self.cuda = spec.device.startswith("cuda")
        self.inputs: dict[str, Any] | None = None
        self._state: Callable[[], dict | None] | None = None  # reads the device's state, once per round
        self.cpus: load.Load | None = None  # the CPUs' load since the job began
        self._clock: Callable[[], float | None] | None = None  # reads a GPU's clock, once a turn
        # of the inputs when candidates were made, None where results are not compared (segments); and others
        self._values: Values | None = None
        self._others: Values | None = None

    def check(self, candidates: list[Candidate], step: Callable[[str], None]) -> None:
        """Set ``run``, ``first_ms`` and ``accuracy`` of every candidate that is correct, ``status`` and
        ``reason`` of the others.

        ``step(text)`` is called before each implementation runs.
        """
        for c in candidates:
            if c.info.reason:
                c.fail("unsupported", c.info.reason)
            elif c.info.kind == "ours" and self.unbuilt:
                c.fail("error", self.unbuilt)
        layouts = ((True, ""), (False, " on strided inputs"))
        for contiguous, what in layouts if self.subject.strided else layouts[:1]:
            if not (case := self._case(candidates, contiguous, step)):
                return
            for c in alive(candidates):
                first = contiguous and self.subject.compile_seconds((c.name,), self.spec.device)
                self._begin(c, step, f"{'compiling' if first else 'checking'} {c.name}{what}")
                c.attempt(partial(self._first if contiguous else self._strided, c, case))
            if contiguous:
                self.inputs, self._values, self._others = case.inputs, Values(case), None
                self._renewed(candidates, case, step)
                self._values.kept.restore()  # what peers have prepared belongs to the first values
            del case  # its reference and copies go before the next are made

    def _renewed(self, candidates: list[Candidate], case: Case, step: Callable[[str], None]) -> None:
        """Once more on fresh values in the same tensors: this catches kernels that return cached results."""
        tried = [c for c in alive(candidates) if self.subject.renews(c.info)]
        if not tried or not self._fits(candidates, case.renew):
            return
        prefix = "on fresh values in the same tensors: "
        for c in tried:
            self._begin(c, step, f"checking {c.name} on fresh values")
            c.attempt(partial(self._verify, c, case, None, prefix, every=c.info.kind != "peer"))
        if self.subject.alters and any(c.status is None for c in tried):
            with contextlib.suppress(torch.OutOfMemoryError, MemoryError):
                self._others = Values(case)

    def sample(
        self, candidates: list[Candidate], mode: str, flush: Callable[[], None] | None, l2_bytes: int | None
    ) -> None:
        """Sample all candidates without a status in one mode, together; their ``series`` get the mode where
        it applies."""
        samplers: dict[str, Watched] = {}
        by_name = {c.name: c for c in alive(candidates)}
        for c in by_name.values():
            self._doing(c)
            if sampler := c.attempt(partial(self._sampler, c, mode, flush, l2_bytes)):
                seed = f"{self.spec.seed} {c.name} {mode}"
                samplers[c.name] = Watched(sampler, self._timed(c, seed), seed, self._clock_of(c, mode))
        if not samplers:
            return

        def turn(name: str) -> None:
            self.reporter.check()
            self._doing(by_name[name])

        self._state, number = self._state or self._state_reader(), itertools.count(1)

        def state() -> dict | None:
            self.round(next(number))
            return self._state()

        stop, move = self._stop(len(samplers)), self._move(samplers)
        sampled = compare.rounds(
            samplers, stop, self.spec.seed, turn, state, self.turn_ms, self.spec.baseline, move
        )
        changed = [name for s in samplers.values() for name in s.timed.found_changed]
        if self._values and (changed := sorted({*changed, *self._values.kept.restore()})):
            self.reporter.log(f"an implementation changed {', '.join(changed)} while it was timed")
        for name, series in sampled.items():
            c = by_name[name]
            if series.failure is not None:
                c.fail(*failures.cause(series.failure))
            else:
                c.series[mode] = series
                c.attempt(partial(self._finish, c, samplers[name]))

    def _finish(self, c: Candidate, sampler: Watched) -> None:
        """After the timing: the results of further calls compared, the inputs, calls on other values."""
        self._doing(c)
        sampler.finish()
        if self._values and (changed := self._values.kept.restore()):
            raise failures.Failed(f"unstable: a timed call changed its input {', '.join(changed)}", "wrong")
        if why := sampler.timed.kept_results():
            raise failures.Failed(why, "wrong")
        c.compared += sampler.compared

    def _timed(self, c: Candidate, seed: str) -> Timed:
        """The checks around its timed calls."""
        other = self._others if self.subject.renews(c.info) else None
        return Timed(c.run, self._values, other, self.subject.alters, c.changed, seed)

    def inspect(self, c: Candidate) -> None:
        """On a GPU: what one call launches, into ``launches``; where that cannot be seen, the log says so."""
        if not self.cuda or c.run is None:
            return
        self._doing(c)
        try:
            c.launches = launches.inspect(c.run, self.spec.device)
        except RuntimeError as e:
            if failures.ends_context(e):
                raise
            self.reporter.log(f"{c.name}: its kernels are not known: {failures.first_line(e)}")

    def _stop(self, count: int) -> compare.Stop:
        """When to stop sampling ``count`` implementations."""
        return compare.Stop.of(self.spec)

    def _move(self, samplers: Mapping[str, timer.Sampler]) -> compare.Move | None:
        """What moves the buffers between rounds, where the subject allows that."""
        if not self.subject.movable or self.inputs is None:
            return None
        graphs = sum(s.mode.startswith("graph") for s in samplers.values())
        return Placement(self.inputs, self.spec.device, self.spec.seed, graphs)

    def _case(self, candidates: list[Candidate], contiguous: bool, step: Step) -> Case | None:
        """Inputs and reference; None where nobody is left to check, or where they do not fit."""
        if not alive(candidates):
            return None
        self._begin(alive(candidates)[0], step, "computing the reference")
        spec, seed = self.spec, self.spec.seed + (not contiguous)
        make = partial(self.subject.case, self.values, spec.dtype, spec.device, seed, contiguous)
        return self._fits(candidates, make)

    def _fits(self, candidates: list[Candidate], work: Callable[[], Any]) -> Any:
        """What ``work`` returns; None where inputs or reference do not fit in memory, which then is
        everybody's status."""
        self.part(REFERENCE)
        try:
            return work() or True
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as e:
            if not failures.is_out_of_memory(e):
                raise
            if self.cuda:
                torch.cuda.empty_cache()
            reason = "the inputs and the reference of this case do not fit in memory"
            for c in alive(candidates):
                c.fail("oom", f"{reason}: {failures.first_line(e)}")
            return None

    def _first(self, c: Candidate, case: Case) -> None:
        make = partial(self.subject.make, c.name, case.inputs)
        c.run, out, c.first_ms = timer.first_call(make, self.spec.device)
        if c.name == "auto":
            chosen = self.subject.describe(c.run.backend, self.spec.device)
            c.info = dataclasses.replace(c.info, source=chosen.source, source_hash=chosen.source_hash)
        self._verify(c, case, out)
        out = None  # its memory is free again, and poisoned for the second call
        if c.status is None and self.subject.poisoned:
            self._verify(c, case, None)

    def _strided(self, c: Candidate, case: Case) -> None:
        timed, c.run = c.run, None
        try:
            run = self.subject.make(c.name, case.inputs)
            with torch.no_grad():
                run()  # allocates what the poisoned call will find again
            c.run = run
            self._verify(c, case, None, "on non-contiguous inputs: ")
        except REFUSALS as e:
            if c.info.kind == "ours" and not isinstance(e, Unsupported):
                raise
            self.reporter.log(f"{c.name} does not take non-contiguous inputs: {failures.first_line(e)}")
        except RuntimeError as e:
            if failures.is_out_of_memory(e) or failures.ends_context(e):
                raise
            c.fail("error", f"on non-contiguous inputs: {failures.one_line(e)}")
        c.run = timed if c.status is None else None

    def _verify(self, c: Candidate, case: Case, out: Any, prefix: str = "", every: bool = False) -> None:
        with torch.no_grad():
            outcome = case.verify(c.run, out, every)
        c.accuracy = worse(c.accuracy, outcome.accuracy)
        if outcome.reason:
            c.accuracy = outcome.accuracy or c.accuracy
            c.fail("wrong", prefix + outcome.reason)

    def _sampler(self, c: Candidate, mode: str, flush, l2_bytes: int | None) -> timer.Sampler | None:
        device = self.spec.device
        if mode.startswith("eager"):
            cold = flush if mode == "eager_cold" else None
            return timer.CudaEager(c.run, device, cold) if self.cuda else timer.CpuEager(c.run, cold)
        try:
            runs = [c.run] if mode == "graph" else self._rotation(c, l2_bytes)
            return graph.of_calls(runs, device, mode)
        except graph.CannotCapture as e:
            self.reporter.log(f"{c.name} has no {mode} time: {e}")
            return None

    def _rotation(self, c: Candidate, l2_bytes: int | None) -> list[Callable[[], Any]]:
        """The callable on as many sets of inputs as exceed L2; CannotCapture where making them would take too
        long."""
        spec, runs = self.spec, [c.run]
        item = getattr(torch, spec.dtype).itemsize
        size = graph.footprint(self.inputs, self.subject.joined(c.run()).numel() * item)
        sets, begun = graph.sets_needed(size, l2_bytes or 64 << 20), time.monotonic()
        while len(runs) < sets:
            seed = spec.seed + 100 + len(runs)
            run = self.subject.make(c.name, self.subject.inputs(self.values, spec.dtype, spec.device, seed))
            run()
            runs.append(run)
            self.reporter.check()
            if (time.monotonic() - begun) / (len(runs) - 1) * (sets - 1) > _SETS_S:
                raise graph.CannotCapture(
                    f"preparing {sets} sets of inputs, to exceed L2, would take more than {_SETS_S:g} s"
                )
        return runs

    def _clock_of(self, c: Candidate, mode: str) -> Callable[[], None]:
        """What notes the clock at the end of each turn of an implementation."""
        clocks = c.clocks.setdefault(mode, [])
        try:
            self._clock = self._clock or device_state.clock_reader(self.spec.device)
        except nvml.NvmlError:
            self._clock = lambda: None  # said once, by _state_reader
        return lambda: clocks.append(self._clock())

    def _state_reader(self) -> Callable[[], dict | None]:
        try:
            return device_state.reader(self.spec.device, self.cpus)
        except nvml.NvmlError as e:
            return self.reporter.log(str(e)) or (lambda: None)

    def _begin(self, c: Candidate, step: Callable[[str], None], text: str) -> None:
        self.reporter.check()
        step(text)
        self._doing(c)

    def _doing(self, c: Candidate) -> None:
        self.part(c.name)
        self.reporter.doing(self.key, c.name, self.spec.case_deadline_s)
