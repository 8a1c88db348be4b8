"""A comparison of ways to run a model, by the very same checks, timer and interleaving as that of operators
(bench.py).

What differs: every way shares one set of weights; a result is right when the tokens that are there agree with
the model in float64, element by element and as a whole; what replays a CUDA graph of its own is not captured
once more but replayed back to back; and the record says throughput, memory, the attention that ran and where
the time goes.
"""

from __future__ import annotations

import gc
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from fusescope import models
from fusescope.core.errors import Unsupported
from fusescope.core.records import DTYPES, BenchSpec, Record
from fusescope.core.reporter import Reporter
from fusescope.measure.bench import Bench
from fusescope.measure.case import Candidate, Trial
from fusescope.measure.checking.check import Case, Judgement, compare
from fusescope.measure.timing import graph
from fusescope.measure.timing.timer import quiet
from fusescope.models.describe import listing, parts
from fusescope.models.run import backends, build, modes, products, tolerance
from fusescope.models.run.fused_encoder import PACKABLE
from fusescope.ops.base import Cost, Implementation, Tolerance

_PRODUCT_SAMPLES = 30
_HOST_MS = 0.05  # a replay that takes the host less is always ahead of the device
_CYCLES_A_MS = 2_000_000  # at about 2 GHz; slower clocks only wait longer


def run(spec: Mapping[str, Any], reporter: Reporter) -> None:
    """Measure the ways of a model: ``spec`` as the job kind ``model`` makes it. Raises as bench.run does."""
    bench = BenchSpec.from_json(spec)
    subject = ModelSubject(
        models.named(bench.op), spec.get("checkpoint"), bool(spec.get("parts", True)), reporter
    )
    ModelBench(bench, reporter, subject).run()


class ModelCase(Case):
    """Inputs of a case with the model in float64 on them; token numbers are drawn anew like values."""

    def allowed(self) -> Tolerance:
        return tolerance.tolerance(self.values["layers"], self.dtype)

    def joined(self, out: Any) -> Any:
        return out

    def renewed(self, name: str, tensor: torch.Tensor) -> bool:
        return name in ("input_ids", "decoder_input_ids", "pixel_values")

    def judge(self, out: torch.Tensor) -> Judgement:
        """Padding does not count: Hugging Face leaves there what attention over padding gives, our encoder
        zeros."""
        there, ref = tolerance.valid(self.inputs, out), self.reference
        if there is not None:
            out, ref = out[there], ref[there.to(ref.device)]
        found = compare(out, ref, self.tolerance, self.precision)
        if found.reason is None:
            norm = float((out.double() - ref.to(out.device).double()).norm() / ref.double().norm())
            limit = tolerance.allowed_norm(self.values["layers"], self.dtype)
            if not norm <= limit:
                return Judgement(
                    found.accuracy,
                    f"the result as a whole is off by {norm:.3g} of its size, allowed is {limit:.2g}",
                )
        return found


class ModelSubject:
    """One model as bench.py asks about it (subject.py)."""

    strided, renews_peers, dtypes = False, True, DTYPES

    def __init__(
        self,
        name: str,
        checkpoint: str | None = None,
        with_parts: bool = True,
        reporter: Reporter | None = None,
    ):
        self.name, self.checkpoint, self.with_parts, self.reporter = name, checkpoint, with_parts, reporter
        self.model: build.Model | None = None
        self._made_for: tuple | None = None
        self.module = SimpleNamespace(NAME=models.op(name), inputs=self._inputs, reference=self._reference)

    def validate(self, case: Mapping[str, Any]) -> dict[str, Any]:
        return models.validate(self.name, case, self.checkpoint)

    def describe(self, impl: str, device: str) -> Implementation:
        return models.way(self.name, impl, device)

    def implementations(self, device: str, arch: str | None) -> list[Implementation]:
        return models.ways(self.name, device)

    def make(self, impl: str, inputs: Mapping[str, Any]) -> Callable[[], Any]:
        return modes.make(impl, self.model, inputs)

    def case(self, values, dtype: str, device: str, seed: int, contiguous: bool) -> Case:
        return ModelCase(self.module, values, dtype, device, seed, contiguous)

    def inputs(self, values, dtype: str, device: str, seed: int) -> dict[str, Any]:
        return self._inputs(values, dtype, device, seed)

    def joined(self, out: Any) -> Any:
        return out

    def cost(self, values: Mapping[str, Any], dtype: str) -> Cost:
        return models.cost(self.name, values, dtype)

    def compile_seconds(self, impls: Iterable[str], device: str) -> float:
        kind = device.split(":")[0]
        return sum(listing.COMPILES.get(i, {}).get(kind, 0.0) for i in dict.fromkeys(impls))

    def end(self) -> None:
        """Graphs and what was compiled for the case hold memory; the weights stay for a further case of the
        same sizes."""
        torch._dynamo.reset()
        if self.model is not None:
            self.model._views.clear()
        gc.collect()

    def complete(self, trial: ModelTrial, candidate: Candidate, record: Record) -> Record:
        """``extra`` of the record, and the attention that ran as its backend."""
        if record.status != "ok":
            return record
        seconds = record.ms / 1e3
        notes, batch = self.cost(trial.values, trial.spec.dtype).notes, trial.values["batch"]
        rate = (trial.ceilings or {}).get("matrix_tflops", {}).get(trial.spec.dtype)
        extra = {
            "parameters": models.anatomy(self.name, trial.values, self.checkpoint)[0].count,
            "throughput": {
                "sequences_per_s": batch / seconds,
                "tokens_per_s": notes["valid_tokens"] / seconds if not self.model.config.patch else None,
                "images_per_s": batch / seconds if self.model.config.patch else None,
            },
            "percentiles_ms": {mode: _percentiles(series.flat) for mode, series in candidate.series.items()},
            "memory": trial.memory(candidate),
            "share_of_peak": record.tflops.effective / rate if rate else None,
            "parts": trial.parts(candidate) if self.with_parts else None,
            "valid_tokens": notes["valid_tokens"],
            "gemms_ms": trial.products(candidate),
        }
        rates = record.tflops
        if (
            candidate.name == "fused"
            and notes["valid_tokens"] != notes["tokens"]
            and trial.values["mask"] in PACKABLE
        ):
            rates = replace(rates, executed=rates.effective)  # padding is removed, not computed
        return replace(
            record, extra=extra, tflops=rates, backend=trial.attention(candidate) or record.backend
        )

    def _inputs(self, values, dtype: str, device: str, seed: int, contiguous: bool = True) -> dict[str, Any]:
        wanted = (models.config(self.name, values, self.checkpoint), dtype, device)
        if self._made_for != wanted:
            self.model = None
            self.model = build.build(self.name, values, dtype, device, checkpoint=self.checkpoint)
            self._made_for = wanted
        return build.inputs(self.model, values, seed)

    def _reference(self, inputs: Mapping[str, Any], dtype: torch.dtype = torch.float64) -> torch.Tensor:
        return tolerance.reference(self.model, inputs, dtype)


class ModelTrial(Trial):
    """One case: as for an operator, with memory booked around the first call and graphs of a way's own
    replayed as they are."""

    ceilings: Mapping[str, Any] | None = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._kept: dict[str, int] = {}
        self._pool = torch.cuda.graph_pool_handle() if self.cuda else None

    def _first(self, c: Candidate, case: Case) -> None:
        before = self._allocated()
        super()._first(c, case)
        if before is not None and c.run is not None:
            gc.collect()
            self._kept[c.name] = max(0, self._allocated() - before)

    def _sampler(self, c: Candidate, mode: str, flush, l2_bytes):
        if not mode.startswith("graph"):
            return super()._sampler(c, mode, flush, l2_bytes)
        try:
            if mode == "graph_cold":
                raise graph.CannotCapture(
                    "a model's weights exceed the caches; its cold time is that of the eager mode"
                )
            if c.run.graph:
                return Replays(getattr(c.run, "replay", c.run), self.spec.device)
            return graph.CudaGraph([c.run], self.spec.device, mode, self._pool)
        except graph.CannotCapture as e:
            self.reporter.log(f"{c.name} has no {mode} time: {e}")
            return None

    def inspect(self, c: Candidate) -> None:
        """The kernels of a whole model are a trace's business (``profile``)."""

    def memory(self, c: Candidate) -> dict[str, int | None]:
        """Bytes: the weights; what the way keeps between calls; what a call takes besides; all three; the
        process by NVML."""
        found = dict.fromkeys(
            ("weights_bytes", "kept_bytes", "call_bytes", "peak_bytes", "nvml_process_bytes")
        )
        found["weights_bytes"] = self.subject.model.bytes
        if not self.cuda:
            return found
        device = self.spec.device
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        c.run()
        torch.cuda.synchronize(device)
        call = max(torch.cuda.max_memory_allocated(device) - before, getattr(c.run, "graph_bytes", 0))
        found |= {"kept_bytes": self._kept.get(c.name), "call_bytes": call}
        found["peak_bytes"] = found["weights_bytes"] + (found["kept_bytes"] or 0) + call
        found["nvml_process_bytes"] = _process_bytes(device)
        return found

    def parts(self, c: Candidate) -> dict[str, Any] | None:
        return self._told(
            c, "where its time goes", lambda: parts.measure(c.name, self.subject.model, self.inputs, c.run)
        )

    def products(self, c: Candidate) -> float | None:
        """Beside the fused encoder on a GPU: median ms of its layers' products alone, in a CUDA graph; what
        is above is everything else."""
        if not self.cuda or c.name != "fused":
            return None

        def ask() -> float:
            run = modes.captured(products.of(self.subject.model, self.inputs), self.inputs, self.spec.device)
            return statistics.median(Replays(run.replay, self.spec.device).take(_PRODUCT_SAMPLES))

        return self._told(c, "what its products alone take", ask)

    def attention(self, c: Candidate) -> str | None:
        return self._told(c, "which attention ran", lambda: backends.ran(c.run, self.spec.device))

    def _told(self, c: Candidate, what: str, ask: Callable[[], Any]) -> Any:
        """What ``ask`` says; nothing where it fails, with the reason in the log: no figure is worth a
        measured record."""
        self._doing(c)
        try:
            return ask()
        except (RuntimeError, Unsupported) as e:
            if "CUDA error" in str(e):
                raise
            self.reporter.log(f"{c.name}: {what} is not known: {graph.first_line(e)}")
            return None

    def _allocated(self) -> int | None:
        if not self.cuda:
            return None
        torch.cuda.synchronize(self.spec.device)
        return torch.cuda.memory_allocated(self.spec.device)


class ModelBench(Bench):
    """Bench over ways of a model."""

    def trial(self, *args) -> ModelTrial:
        found = ModelTrial(*args)
        found.ceilings = getattr(self, "ceilings", None)
        return found


class Replays:
    """Samples of a graph that a way owns: replays queued back to back behind an untimed one, an event between
    each two.

    What torch.compile replays passes its guards in Python first, which takes longer than a small model: the
    device then waits until all of a turn is queued, so that its own time is seen, as of the other ways.
    """

    mode = "graph"

    def __init__(self, replay: Callable[[], Any], device: str):
        self._replay, self._device, self._host_ms = replay, device, 0.0
        self.take(1)
        begin = time.perf_counter()
        replay()
        self._host_ms = (time.perf_counter() - begin) * 1e3
        torch.cuda.synchronize(device)
        self.cost_ms = min(self.take(3)) + self._host_ms

    def take(self, count: int) -> list[float]:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        with quiet(), torch.cuda.device(self._device):
            if self._host_ms > _HOST_MS:
                torch.cuda._sleep(int((count + 1) * self._host_ms * 1.5 * _CYCLES_A_MS))
            self._replay()
            events[0].record()
            for event in events[1:]:
                self._replay()
                event.record()
            events[-1].synchronize()
        return [a.elapsed_time(b) for a, b in itertools.pairwise(events)]


def _percentiles(ms: list[float]) -> dict[str, float]:
    p50, p90, p99 = np.percentile(ms, (50, 90, 99))
    return {"p50": float(p50), "p90": float(p90), "p99": float(p99)}


def _process_bytes(device: str) -> int | None:
    """What this process holds on the GPU by NVML, context and libraries included; None where NVML does not
    say."""
    from fusescope.core import environment

    own = (environment.gpu_of(device) or {}).get("processes") or ()
    return next((p.get("memory_bytes") for p in own if p.get("pid") == os.getpid()), None)
