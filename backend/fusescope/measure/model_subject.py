"""One model as bench.py asks about it: inputs, float64 reference, tolerance, execution modes, and what only
its record says."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fusescope import models
from fusescope.core.records import DTYPES, Record
from fusescope.measure.checking.check import Case, Outcome, compare, wrong_kind
from fusescope.measure.subject import Subject
from fusescope.models.describe.family import FP8_CACHE
from fusescope.models.describe.modes import COMPILES, MODES, REFERENCE_S, quantised_of
from fusescope.models.run import build, modes, tolerance
from fusescope.models.run.decoder import quantised
from fusescope.models.run.decoder.fp8_cache import Fp8Cache
from fusescope.models.run.fused_encoder import PACKABLE
from fusescope.ops.base import Cost, Implementation, Tolerance


class ModelCase(Case):
    """Inputs of a case with the model in float64 on them; token numbers are redrawn like values. kept_by: the
    fp8 cache of the run that is checked, whose contents the reference follows; known: those that it is of."""

    kept_by: Fp8Cache | None = None
    known: list[torch.Tensor] | None = None

    def allowed(self) -> Tolerance:
        return tolerance.tolerance(self.values["layers"], self.dtype)

    def __post_init__(self):
        self.with_quantised: dict[tuple, ModelCase] = {}  # by kind and reference without
        super().__post_init__()

    def of(self, run: Callable[[], Any]) -> ModelCase:
        """The case as a call is checked: one with quantised weights, or a quantised cache, computes another
        model."""
        kind = getattr(run, "quantised", None)
        if kind is None:
            return self
        key = kind, id(self.reference)
        if key not in self.with_quantised:
            other = self.with_quantised[key] = copy.copy(self)
            if kind != FP8_CACHE:
                other.reference = tolerance.reference(self.module.model, self.inputs, quantised=kind)
        found = self.with_quantised[key]
        found.kept_by = run.kept if kind == FP8_CACHE else None
        return found

    def verify(self, run: Callable[[], Any], out: Any = None, every: bool = False) -> Outcome:
        """As any case; of a call with quantisation run.figures says how far that led from the model's own
        outputs."""
        case = self.of(run)
        if case is self:
            return super().verify(run, out, every)
        if isinstance(out, torch.Tensor) and out.shape == self.reference.shape:
            given, exact = self._there(out)
            run.figures = quantised.figures(given, exact, self.values["phase"] != "prefill")
        return Case.verify(case, run, out, every)

    def comparison(self) -> Callable[[Callable[[], Any], Any], str | None]:
        """Of real tokens, as ``against_reference`` has it: with the reference as it is now."""
        now = copy.copy(self)

        def look(run: Callable[[], Any], out: Any) -> str | None:
            fault = wrong_kind(out, now.reference.shape, now.dtype, now.device)
            return fault or now.of(run).against_reference(out).reason

        return look

    def joined(self, out: Any) -> Any:
        return out

    def renewed(self, name: str, tensor: torch.Tensor) -> bool:
        return name in ("input_ids", "decoder_input_ids", "pixel_values", "input_features")

    def against_reference(self, out: torch.Tensor) -> Outcome:
        """Padding does not count: Hugging Face leaves there what attention over padding gives, our encoder
        zeros."""
        if self.kept_by is not None:
            self._over_what_was_kept()
        out, ref = self._there(out)
        outcome = compare(out, ref, self.tolerance, self.precision)
        if outcome.reason is None:
            norm = float((out.double() - ref.to(out.device).double()).norm() / ref.double().norm())
            limit = tolerance.allowed_norm(self.values["layers"], self.dtype)
            if not norm <= limit:
                return Outcome(
                    outcome.accuracy,
                    f"the result as a whole is off by {norm:.3g} of its size, allowed is {limit:.2g}",
                )
        return outcome

    def _over_what_was_kept(self) -> None:
        """The reference over the fp8 cache as the call left it; that of the call before where it left the
        same."""
        now = [t.view(torch.uint8) for t in (*self.kept_by.keys, *self.kept_by.values)]
        now += [scale for layer in self.kept_by.scales for scale in layer.values()]
        if self.known is None or not all(map(torch.equal, self.known, now)):
            self.known = [t.clone() for t in now]
            self.reference = tolerance.reference(self.module.model, self.inputs, kept=self.kept_by)

    def _there(self, out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Result and reference of the tokens that are there."""
        there, ref = tolerance.valid(self.inputs, out), self.reference
        return (out, ref) if there is None else (out[there], ref[there.to(ref.device)])


class ModelSubject(Subject):
    """One model. All execution modes share one set of weights, kept for further cases of the same sizes.
    with_parts: look where the time of a call goes."""

    dtypes = DTYPES
    reference_s = REFERENCE_S

    def __init__(self, name: str, checkpoint: str | None = None, with_parts: bool = True):
        self.name, self.checkpoint, self.with_parts = name, checkpoint, with_parts
        self.NAME = models.op(name)
        self.model: build.Model | None = None
        self._built_for: tuple | None = None

    def validate(self, case: Mapping[str, Any]) -> dict[str, Any]:
        return models.validate(self.name, case, self.checkpoint)

    def describe(self, impl: str, device: str) -> Implementation:
        return models.mode(self.name, impl, device)

    def implementations(self, device: str, arch: str | None) -> list[Implementation]:
        return models.modes(self.name, device)

    def make(self, impl: str, inputs: Mapping[str, Any]) -> Callable[[], Any]:
        return modes.make(impl, self.model, inputs)

    def case(self, values, dtype: str, device: str, seed: int, contiguous: bool) -> Case:
        return ModelCase(self, values, dtype, device, seed, contiguous)

    def inputs(self, values, dtype: str, device: str, seed: int, contiguous: bool = True) -> dict[str, Any]:
        wanted = (models.config(self.name, values, self.checkpoint), dtype, device)
        if self._built_for != wanted:
            self.model = None
            self.model = build.build(self.name, values, dtype, device, checkpoint=self.checkpoint)
            self._built_for = wanted
        return build.inputs(self.model, values, seed)

    def reference(self, inputs: Mapping[str, Any], dtype: torch.dtype = torch.float64) -> torch.Tensor:
        return tolerance.reference(self.model, inputs, dtype)

    def cost(self, values: Mapping[str, Any], dtype: str, impl: str | None = None) -> Cost:
        return models.cost(self.name, values, dtype, impl and quantised_of(impl))

    def compile_seconds(self, impls: Iterable[str], device: str) -> float:
        kind = device.split(":")[0]
        return sum(COMPILES.get(i, {}).get(kind, 0.0) for i in dict.fromkeys(impls))

    def end(self) -> None:
        """Graphs and what was compiled for the case hold memory; the weights stay."""
        torch._dynamo.reset()
        if self.model is not None:
            self.model.forget_views()
        gc.collect()

    def complete(self, trial, candidate, record: Record) -> Record:
        """With ``extra`` (throughput, memory, time breakdown) and the attention that ran as its backend."""
        if record.status != "ok":
            return record
        seconds = record.ms / 1e3
        notes, batch = self.cost(trial.values, trial.spec.dtype).notes, trial.values["batch"]
        rate, images = trial.ceilings["matrix_tflops"].get(trial.spec.dtype), bool(self.model.config.patch)
        extra = {
            "parameters": models.anatomy(self.name, trial.values, self.checkpoint)[0].count,
            "throughput": {
                "sequences_per_s": batch / seconds,
                "tokens_per_s": None if images else notes["valid_tokens"] / seconds,
                "images_per_s": batch / seconds if images else None,
            },
            "percentiles_ms": {mode: _percentiles(series.flat) for mode, series in candidate.series.items()},
            "memory": trial.memory(candidate),
            "share_of_peak": record.tflops.effective / rate if rate else None,
            "parts": trial.parts(candidate) if self.with_parts else None,
            "valid_tokens": notes["valid_tokens"],
            "gemms_ms": trial.products(candidate),
        }
        if found := getattr(candidate.run, "figures", None):
            extra["quantised"] = found
        extra["generation"] = trial.generation(
            candidate, extra["percentiles_ms"][record.main], extra["memory"]
        )
        rates, padded = record.tflops, notes["valid_tokens"] != notes["tokens"]
        if MODES[candidate.name].attention is None and padded and trial.values["mask"] in PACKABLE:
            rates = replace(rates, executed=rates.effective)  # padding is removed, not computed
        backend = trial.attention(candidate) or record.backend
        return replace(record, extra=extra, tflops=rates, backend=backend)


def _percentiles(ms: list[float]) -> dict[str, float]:
    p50, p90, p99 = np.percentile(ms, (50, 90, 99))
    return {"p50": float(p50), "p90": float(p90), "p99": float(p99)}
