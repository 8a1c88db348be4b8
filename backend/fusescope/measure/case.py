"""One case of a comparison: check every implementation, then sample the right ones together, mode by mode.

A ``Candidate`` carries what is known of one implementation on the way to its record; one that has a
``status`` takes no further part.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from fusescope.analysis.accuracy.sums import worse
from fusescope.core.errors import BuildError, Cancelled, Unsupported
from fusescope.core.records import Accuracy, BenchSpec, case_key
from fusescope.core.reporter import Reporter
from fusescope.measure import compare
from fusescope.measure.checking.check import Case
from fusescope.measure.device import device_state
from fusescope.measure.timing import graph, launches, timer
from fusescope.ops.base import Implementation

REFUSALS = (Unsupported, ValueError, TypeError, NotImplementedError, AssertionError)
"""What a user's function or a peer raises to say that it does not take strided inputs: a refusal, not a wrong
result."""

_SETS_S = 10.0  # seconds that making the rotating sets of one implementation may take


@dataclass
class Candidate:
    """One implementation on one case. status stays None while it may be timed."""

    info: Implementation
    run: Callable[[], Any] | None = None
    first_ms: float | None = None
    accuracy: Accuracy | None = None
    status: str | None = None
    reason: str | None = None
    series: dict[str, compare.Series] = field(default_factory=dict)
    launches: list[launches.Launch] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.info.name

    def fail(self, status: str, reason: str) -> None:
        self.status, self.reason, self.run = status, reason, None
        self.series.clear()


class Trial:
    """One case: ``values`` of ``subject`` (subject.py) on ``spec.device``. ``unbuilt``: why our kernels could
    not be built, or None."""

    def __init__(
        self,
        spec: BenchSpec,
        subject,
        values: Mapping[str, Any],
        reporter: Reporter,
        unbuilt: str | None = None,
    ):
        self.spec, self.subject, self.values, self.reporter, self.unbuilt = (
            spec,
            subject,
            values,
            reporter,
            unbuilt,
        )
        self.key = case_key(spec.op, values, spec.dtype, spec.device)
        self.cuda = spec.device.startswith("cuda")
        self.inputs: dict[str, Any] | None = None

    def check(self, candidates: list[Candidate], step: Callable[[str], None]) -> None:
        """Set ``run``, ``first_ms`` and ``accuracy`` of every candidate that is right, ``status`` and
        ``reason`` of the others.

        ``step(text)`` is told of each implementation before it runs.
        """
        for c in candidates:
            if c.info.reason:
                c.fail("unsupported", c.info.reason)
            elif c.info.kind == "ours" and self.unbuilt:
                c.fail("error", self.unbuilt)
        for contiguous, what in ((True, ""), (False, " on strided inputs"))[
            : 2 if self.subject.strided else 1
        ]:
            if not (case := self._case(candidates, contiguous)):
                return
            for c in alive(candidates):
                self._begin(c, step, f"checking {c.name}{what}")
                self._guarded(c, partial(self._first if contiguous else self._strided, c, case))
            if contiguous:
                self.inputs = case.inputs
                self._renewed(candidates, case, step)
            del case  # its reference and copies go before the next are made

    def _renewed(self, candidates: list[Candidate], case: Case, step: Callable[[str], None]) -> None:
        """Once more on fresh values in the same tensors. Not the peers: theirs may have been made outside the
        call (a bias and a mask in one tensor), and PyTorch does not cheat."""
        tried = [c for c in alive(candidates) if c.info.kind != "peer" or self.subject.renews_peers]
        if not tried or not self._fits(candidates, case.renew):
            return
        for c in tried:
            self._begin(c, step, f"checking {c.name} on fresh values")
            self._guarded(
                c,
                partial(
                    self._judge,
                    c,
                    case,
                    None,
                    "on fresh values in the same tensors: ",
                    every=c.info.kind != "peer",
                ),
            )

    def sample(
        self, candidates: list[Candidate], mode: str, flush: Callable[[], None] | None, l2_bytes: int | None
    ) -> None:
        """Sample all candidates without a status in one mode, together; their ``series`` get the mode where
        it applies."""
        samplers: dict[str, timer.Sampler] = {}
        by_name = {c.name: c for c in alive(candidates)}
        for c in by_name.values():
            self._doing(c)
            if sampler := self._guarded(c, partial(self._sampler, c, mode, flush, l2_bytes)):
                samplers[c.name] = sampler
        if not samplers:
            return

        def turn(name: str) -> None:
            self.reporter.check()
            self._doing(by_name[name])

        spec = self.spec
        stop = compare.Stop(spec.precision, spec.min_samples, spec.min_s, spec.budget_s)
        found = compare.rounds(samplers, stop, spec.seed, turn, self._state_reader())
        for name, series in found.items():
            if series.failure is not None:
                self._book(by_name[name], series.failure)
            else:
                by_name[name].series[mode] = series

    def inspect(self, c: Candidate) -> None:
        """On a GPU: what one call launches, into ``launches``; a call that shows nothing is said in the
        log."""
        if not self.cuda or c.run is None:
            return
        self._doing(c)
        try:
            c.launches = launches.inspect(c.run, self.spec.device)
        except RuntimeError as e:
            if compare.ends_context(e):
                raise
            self.reporter.log(f"{c.name}: its kernels are not known: {graph.first_line(e)}")

    def _case(self, candidates: list[Candidate], contiguous: bool) -> Case | None:
        """Inputs and reference; None where nobody is left to check, or where they do not fit."""
        if not alive(candidates):
            return None
        self._doing(alive(candidates)[0])
        seed = self.spec.seed + (0 if contiguous else 1)
        make = partial(self.subject.case, self.values, self.spec.dtype, self.spec.device, seed, contiguous)
        return self._fits(candidates, make)

    def _fits(self, candidates: list[Candidate], work: Callable[[], Any]) -> Any:
        """What ``work`` gives; None where inputs or reference do not fit in memory, which then is everybody's
        status."""
        try:
            return work() or True
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as e:
            if not is_out_of_memory(e):
                raise
            self._empty_cache()
            for c in alive(candidates):
                c.fail(
                    "oom",
                    f"the inputs and the reference of this case do not fit in memory: {graph.first_line(e)}",
                )
            return None

    def _first(self, c: Candidate, case: Case) -> None:
        c.run, out, c.first_ms = timer.first_call(
            partial(self.subject.make, c.name, case.inputs), self.spec.device
        )
        if c.name == "auto":
            chosen = self.subject.describe(c.run.backend, self.spec.device)
            c.info = dataclasses.replace(c.info, source=chosen.source, source_hash=chosen.source_hash)
        self._judge(c, case, out)
        out = None  # its memory is free again, and poisoned for the second call
        if c.status is None:
            self._judge(c, case, None)

    def _strided(self, c: Candidate, case: Case) -> None:
        timed, c.run = c.run, None
        try:
            run = self.subject.make(c.name, case.inputs)
            with torch.no_grad():
                run()  # allocates what the poisoned call will find again
            c.run = run
            self._judge(c, case, None, "on non-contiguous inputs: ")
        except REFUSALS as e:
            if c.info.kind == "ours" and not isinstance(e, Unsupported):
                raise
            self.reporter.log(f"{c.name} does not take non-contiguous inputs: {graph.first_line(e)}")
        except RuntimeError as e:
            if is_out_of_memory(e) or compare.ends_context(e):
                raise
            c.fail("error", f"on non-contiguous inputs: {one_line(e)}")
        c.run = timed if c.status is None else None

    def _judge(self, c: Candidate, case: Case, out: Any, prefix: str = "", every: bool = False) -> None:
        with torch.no_grad():
            judgement = case.verify(c.run, out, every)
        c.accuracy = worse(c.accuracy, judgement.accuracy)
        if judgement.reason:
            c.accuracy = judgement.accuracy or c.accuracy
            c.fail("wrong", prefix + judgement.reason)

    def _sampler(self, c: Candidate, mode: str, flush, l2_bytes: int | None) -> timer.Sampler | None:
        device = self.spec.device
        if mode.startswith("eager"):
            cold = flush if mode == "eager_cold" else None
            return timer.CudaEager(c.run, device, cold) if self.cuda else timer.CpuEager(c.run, cold)
        try:
            runs = [c.run] if mode == "graph" else self._rotation(c, l2_bytes)
            return graph.CudaGraph(runs, device, mode)
        except graph.CannotCapture as e:
            self.reporter.log(f"{c.name} has no {mode} time: {e}")
            return None

    def _rotation(self, c: Candidate, l2_bytes: int | None) -> list[Callable[[], Any]]:
        """The callable on as many sets of inputs as exceed L2; CannotCapture where making them would take too
        long."""
        item = getattr(torch, self.spec.dtype).itemsize
        size = graph.footprint(self.inputs, self.subject.joined(c.run()).numel() * item)
        sets = graph.sets_needed(size, l2_bytes or 64 << 20)
        runs, begun = [c.run], time.monotonic()
        while len(runs) < sets:
            inputs = self.subject.inputs(
                self.values, self.spec.dtype, self.spec.device, self.spec.seed + 100 + len(runs)
            )
            run = self.subject.make(c.name, inputs)
            run()
            runs.append(run)
            self.reporter.check()
            if (time.monotonic() - begun) / (len(runs) - 1) * (sets - 1) > _SETS_S:
                raise graph.CannotCapture(
                    f"preparing {sets} sets of inputs, to exceed L2, would take more than {_SETS_S:g} s"
                )
        return runs

    def _state_reader(self) -> Callable[[], dict | None]:
        try:
            return device_state.reader(self.spec.device)
        except device_state.NvmlError as e:
            self.reporter.log(str(e))
            return lambda: None

    def _begin(self, c: Candidate, step: Callable[[str], None], text: str) -> None:
        self.reporter.check()
        step(text)
        self._doing(c)

    def _doing(self, c: Candidate) -> None:
        self.reporter.doing(self.key, c.name, self.spec.case_deadline_s)

    def _guarded(self, c: Candidate, work: Callable[[], Any]) -> Any:
        """The result of ``work``; None where it failed, which is then the candidate's status."""
        try:
            return work()
        except Exception as e:
            self._book(c, e)

    def _book(self, c: Candidate, e: Exception) -> None:
        """Turn an exception into a status; what is no implementation's fault, or ends the process's context,
        goes up."""
        if isinstance(e, Cancelled | BrokenPipeError) or compare.ends_context(e):
            raise e
        if is_out_of_memory(e):
            self._empty_cache()
            c.fail("oom", f"out of memory: {one_line(e)}")
        elif isinstance(e, Unsupported):
            c.fail("unsupported", str(e))
        elif isinstance(e, BuildError):
            c.fail("error", str(e))
        else:
            c.fail("error", one_line(e))

    def _empty_cache(self) -> None:
        if self.cuda:
            torch.cuda.empty_cache()


def alive(candidates: list[Candidate]) -> list[Candidate]:
    """Those that may still be timed."""
    return [c for c in candidates if c.status is None]


def candidates(subject, names: list[str], device: str, arch: str | None) -> list[Candidate]:
    """One Candidate a name, in that order, with the reason of those that cannot run on the device."""
    listed = {i.name: i for i in subject.implementations(device, arch)}
    return [Candidate(dataclasses.replace(listed.get(n) or subject.describe(n, device))) for n in names]


def is_out_of_memory(e: BaseException) -> bool:
    """Out of memory on either device; the CPU allocator says it in words only."""
    return isinstance(e, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(e)


def one_line(e: BaseException) -> str:
    """An exception as a reason: its type and its first line."""
    return f"{type(e).__name__}: {graph.first_line(e)}"
