"""A comparison of a model's execution modes, with the checks, the timer and the interleaving of bench.py.

What differs: all modes share one set of weights; a result is correct when its real tokens agree with the
model in float64, element by element and as a whole; a mode that replays a CUDA graph of its own is not
captured again; and the record has throughput, memory, the attention that ran and where the time goes.
"""

from __future__ import annotations

import gc
import os
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fusescope import models
from fusescope.core.errors import Unsupported
from fusescope.core.machine import environment
from fusescope.core.records import BenchSpec
from fusescope.core.reporter import Reporter
from fusescope.measure import failures
from fusescope.measure.bench import Bench
from fusescope.measure.candidate import Candidate
from fusescope.measure.checking.check import Case
from fusescope.measure.device import allocated
from fusescope.measure.model_subject import ModelSubject
from fusescope.measure.timing import graph
from fusescope.measure.timing.replays import Replays
from fusescope.measure.trial import Trial
from fusescope.models.inspect import backends, generation, parts
from fusescope.models.run import capture, products

_PRODUCT_SAMPLES = 30


def run(spec: Mapping[str, Any], reporter: Reporter) -> None:
    """Measure execution modes of a model: ``spec`` as the job kind ``model`` makes it. Raises as bench.run
    does."""
    bench = BenchSpec.from_json(spec)
    subject = ModelSubject(models.named(bench.op), spec.get("checkpoint"), bool(spec.get("parts", True)))
    ModelBench(bench, reporter, subject).run()


class ModelTrial(Trial):
    """One case: as for an operator, with memory recorded around the first call and a mode's own graphs
    replayed as they are."""

    ceilings: Mapping[str, Any] = {}

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # of each mode: bytes of tensors and of graph pools that it keeps between calls
        self._memory: dict[str, tuple[int, int | None]] = {}
        self._pool = torch.cuda.graph_pool_handle() if self.cuda else None

    def _first(self, c: Candidate, case: Case) -> None:
        before = allocated.on(self.spec.device) if self.cuda else None
        super()._first(c, case)
        if before is not None and c.run is not None:
            gc.collect()
            after = allocated.on(self.spec.device)
            self._memory[c.name] = allocated.grown(before, after, bool(c.run.graph))

    def _sampler(self, c: Candidate, mode: str, flush, l2_bytes):
        if not mode.startswith("graph"):
            return super()._sampler(c, mode, flush, l2_bytes)
        try:
            if mode == "graph_cold":
                raise graph.CannotCapture(
                    "a model's weights exceed the caches; its cold time is that of the eager mode"
                )
            if c.run.graph:
                replay, result = getattr(c.run, "replay", c.run), getattr(c.run, "result", None)
                return Replays(replay, self.spec.device, result)
            return graph.CudaGraph([c.run], self.spec.device, mode, self._pool)
        except graph.CannotCapture as e:
            self.reporter.log(f"{c.name} has no {mode} time: {e}")
            return None

    def inspect(self, c: Candidate) -> None:
        """The kernels of a whole model are a trace's business (``profile``)."""

    def memory(self, c: Candidate) -> dict[str, int | None]:
        """Bytes: the weights; tensors that the mode keeps between calls; the pools of its CUDA graphs; what a
        call allocates on top; all four; the process by NVML. None where it is not known: of a CPU, of graph
        pools that several modes share, and of a process that measures several modes."""
        names = ("weights", "kept", "graph_pool", "call", "peak", "nvml_process")
        found = dict.fromkeys(f"{name}_bytes" for name in names)
        found["weights_bytes"] = self.subject.model.bytes
        if not self.cuda:
            return found
        device = self.spec.device
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        c.run()
        torch.cuda.synchronize(device)
        kept, pool = self._memory.get(c.name, (None, None))
        call = torch.cuda.max_memory_allocated(device) - before
        found |= {"kept_bytes": kept, "graph_pool_bytes": pool, "call_bytes": call}
        if kept is not None and pool is not None:
            found["peak_bytes"] = found["weights_bytes"] + kept + pool + call
        if len(self.spec.impls) == 1:
            torch.cuda.empty_cache()  # what the allocator kept of the reference is not the mode's
            found["nvml_process_bytes"] = _process_bytes(device)
        return found

    def parts(self, c: Candidate) -> dict[str, Any] | None:
        model = self.subject.model
        return self._try(c, "where its time goes", lambda: parts.measure(c.name, model, self.inputs, c.run))

    def products(self, c: Candidate) -> float | None:
        """For fused layers on a GPU: median ms of their products alone, in a CUDA graph; None of a
        generation, whose products are of many shapes."""
        if not self.cuda or c.name != "fused" or self.values.get("phase") == "generate":
            return None

        def measure() -> float:
            run = products.of(self.subject.model, self.inputs)
            replay = capture.captured(run, self.spec.device).replay
            return statistics.median(Replays(replay, self.spec.device).take(_PRODUCT_SAMPLES))

        return self._try(c, "what its products alone take", measure)

    def generation(self, c: Candidate, times: Mapping[str, float], memory) -> dict[str, Any] | None:
        """What decides how a model generates: models/inspect/generation.py; None of a model that does not."""
        rate = max(self.ceilings.get(name) or 0 for name in ("read_gbps", "copy_gbps"))
        found = (c.run, c.name, self.subject.model, self.inputs, times, memory, rate or None)
        return self._try(c, "how it generates", lambda: generation.report(*found))

    def attention(self, c: Candidate) -> str | None:
        return self._try(c, "which attention ran", lambda: backends.ran(c.run, self.spec.device))

    def _try(self, c: Candidate, what: str, work: Callable[[], Any]) -> Any:
        """What ``work`` returns; None where it fails, with the reason in the log: no figure is worth a
        measured record."""
        self._doing(c)
        try:
            return work()
        except (RuntimeError, Unsupported) as e:
            if "CUDA error" in str(e):
                raise
            self.reporter.log(f"{c.name}: {what} is not known: {failures.first_line(e)}")
            return None


class ModelBench(Bench):
    """Bench over execution modes of a model."""

    def trial(self, *args) -> ModelTrial:
        trial = ModelTrial(*args)
        if hasattr(self, "alarm"):  # not under a profiler, where nothing is timed
            trial.ceilings = self.alarm.ceilings
        return trial


def _process_bytes(device: str) -> int | None:
    """What this process holds on the GPU by NVML, context and libraries included; None where NVML does not
    say."""
    own = (environment.gpu_of(device) or {}).get("processes") or ()
    return next((p.get("memory_bytes") for p in own if p.get("pid") == os.getpid()), None)
