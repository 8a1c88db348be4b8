"""What is known of an implementation over several ranks, and its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fusescope import models
from fusescope.core.machine.conditions import Conditions
from fusescope.core.records import Accuracy, BenchSpec, Record, Times, case_key
from fusescope.core.reporter import Reporter
from fusescope.measure.checking.check import Outcome
from fusescope.measure.compare import Series, Stop, speedup
from fusescope.measure.device import device_state
from fusescope.models.parallel.placed import Placed


@dataclass
class Found:
    """One implementation on one case while it is measured; figures of ranks are rank 0's to know. status: why
    it has no time, None while it may have one."""

    name: str
    placed: Placed | None = None
    status: str | None = None
    reason: str | None = None
    first_ms: float | None = None
    weights: list[int] = field(default_factory=list)  # bytes by rank
    peaks: list[int | None] = field(default_factory=list)
    accuracy: Accuracy | None = None
    compared: int = 0
    series: Series | None = None
    shares: list[dict | None] = field(default_factory=list)
    shares_unknown: str | None = None

    def checked(self, outcome: Outcome) -> None:
        """Take in one comparison: the worst of all counts."""
        self.compared += 1
        a, b = self.accuracy, outcome.accuracy
        if a is None or b is None:
            self.accuracy = a or b
        else:
            self.accuracy = Accuracy(
                max(a.max_abs, b.max_abs),
                max(a.max_rel, b.max_rel),
                min(a.cosine, b.cosine),
                a.reference,
            )
        if outcome.reason is not None:
            self.status, self.reason = "wrong", outcome.reason


def key(spec: Mapping[str, Any], case: Mapping[str, Any]) -> str:
    return case_key(spec["op"], case, spec["dtype"], spec["device"])


def emit(reporter: Reporter, bench: BenchSpec, spec, group, measured: Mapping[str, Found], impl: str) -> None:
    """The record and the raw samples of an implementation."""
    found, case = measured[impl], group.case
    common = dict(op=bench.op, impl=impl, case=dict(case), dtype=bench.dtype, device=bench.device)
    common["accuracy"] = found.accuracy
    if found.status is not None:
        reporter.record(Record(status=found.status, reason=found.reason, **common))
        return
    series = found.series
    base = measured.get(spec["baseline"]) if group.scaling == "strong" else None
    base = base.series if base and base.status is None else None
    reporter.samples(key(spec, case), impl, series.mode, series.flat, series.states)
    reporter.record(
        Record(
            status="ok",
            time_ms=Times(first=found.first_ms, eager=series.time()),
            speedup=speedup(base, series, Stop.of(bench)) if base else None,
            conditions=_conditions(found),
            extra=_extra(spec, group, found, _single(measured, found)),
            backend=f"{found.placed.attention} over {'nccl' if bench.device.startswith('cuda') else 'gloo'}",
            **common,
        )
    )


def _single(measured: Mapping[str, Found], found: Found) -> float | None:
    one = measured.get(found.placed.attention)
    return one.series.time().median if one and one.status is None and one.series else None


def _conditions(found: Found) -> Conditions:
    states = [s for s in found.series.states if s]
    return device_state.conditions(states, (), (), found.compared)


def _extra(spec: Mapping[str, Any], group, found: Found, single_ms: float | None) -> dict[str, Any]:
    """As a model's record, and ``parallel``: the layout, bytes and shares by rank. single_ms: of the same
    attention on one device in the same rounds, of weak scaling on the case itself."""
    name, case = spec["op"].removeprefix("model:"), group.case
    seconds, layout = found.series.time().median / 1e3, found.placed.layout
    tokens = models.cost(name, case, spec["dtype"]).notes["valid_tokens"]
    known = [p for p in found.peaks if p is not None]
    p50, p90, p99 = np.percentile(found.series.flat, (50, 90, 99))
    shares = [s for s in found.shares if s]
    sent = sum(s["communication_ms"] for s in shares)
    exposed = sum(s["exposed_ms"] for s in shares)
    span = sum(s["span_ms"] for s in shares)
    single = layout.ranks == 1
    return {
        "parameters": models.anatomy(name, case)[0].count,
        "throughput": {
            "sequences_per_s": case["batch"] / seconds,
            "tokens_per_s": tokens / seconds,
            "images_per_s": None,
        },
        "percentiles_ms": {found.series.mode: {"p50": float(p50), "p90": float(p90), "p99": float(p99)}},
        "memory": {
            "weights_bytes": max(found.weights),
            "kept_bytes": None,
            "graph_pool_bytes": None,
            "call_bytes": max(known) - max(found.weights) if known else None,
            "peak_bytes": max(known) if known else None,
            "nvml_process_bytes": None,
        },
        "share_of_peak": None,
        "parts": None,
        "valid_tokens": tokens,
        "gemms_ms": None,
        "parallel": {
            "layout": str(layout),
            "tp": layout.tp,
            "pp": layout.pp,
            "dp": layout.dp,
            "ranks": layout.ranks,
            "micro_batches": spec["micro_batches"] if layout.pp > 1 else 1,
            "scaling": group.scaling,
            "attention": found.placed.attention,
            "single_ms": single_ms,
            "weights_bytes": found.weights,
            "peak_bytes": found.peaks,
            "communication": {
                "share": 0.0 if single else sent / span if span else None,
                "hidden": 1 - exposed / sent if sent else None,
                "ranks": found.shares,
                "unknown": found.shares_unknown,
            },
        },
    }
