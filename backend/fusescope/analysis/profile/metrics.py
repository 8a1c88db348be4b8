"""The figures of a whole profile, per step, and how those of one stand against those of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_IDLE = {
    "host": "host had not launched",
    "synchronised": "host synchronised",
    "launched": "launch latency or dependency",
    "profiler": "profiler overhead",
    "unknown": "unknown cause",
}
TOLERANCE = 0.02  # profiled times are no latencies: a smaller change means nothing


@dataclass(frozen=True)
class Metric:
    """unit: "ns", "bytes", "share" (0 … 1) or "" (a count); better: "lower", "higher", or "" where neither
    is."""

    name: str
    value: float
    unit: str
    better: str = "lower"


@dataclass(frozen=True)
class Change:
    """A metric in both profiles. factor: how many times better b is, > 1 is better, None where neither is
    better or one is 0; state: "better", "worse", "same" or "" (neither)."""

    name: str
    unit: str
    a: float
    b: float
    factor: float | None
    state: str


def step_ns(summary: Mapping[str, Any], steps: int = 1) -> float | None:
    """Time of a step on the device: from the first activity to the last, idle time included, over the number
    of steps; of several devices the longest. None without a device."""
    spans = [d["last_ns"] - d["first_ns"] for d in summary.get("devices") or ()]
    return max(spans) / max(1, steps) if spans and max(spans) > 0 else None


def metrics(
    summary: Mapping[str, Any], steps: Sequence[Mapping[str, Any]] = (), ncu: Sequence[Mapping[str, Any]] = ()
) -> list[Metric]:
    """Of a profile's summary.json, its table steps and the rows of ncu_kernels; what it lacks is left out.
    Step time comes first. ncu's are weighted with each launch's time."""
    count, found = max(1, len(steps)), []
    devices = summary.get("devices") or ()
    whole = step_ns(summary, count)
    if whole:
        span = sum(d["last_ns"] - d["first_ns"] for d in devices)
        busy, kernels, copies = (sum(d[k] for d in devices) for k in ("busy_ns", "kernel_ns", "copy_ns"))
        rows = summary.get("rows") or {}
        found += [
            Metric("step time on the device", whole, "ns"),
            Metric("device busy", busy / span, "share", "higher"),
            Metric("kernel time", kernels / count, "ns"),
            Metric("kernels", rows.get("kernels", 0) / count, ""),
            Metric("memcpy/memset time", copies / count, "ns"),
            Metric("API calls", rows.get("launches", 0) / count, ""),
        ]
        idle = (summary.get("idle") or {}).items()
        found += [
            Metric(f"idle: {_IDLE.get(cause, cause)}", row["total_ns"] / count, "ns") for cause, row in idle
        ]
    elif steps:
        host = sum(s["dur_ns"] for s in steps) / count
        found.append(Metric("step time on the host", host, "ns"))
    return found + _counters(ncu)


def compare(a: Sequence[Metric], b: Sequence[Metric]) -> list[Change]:
    """Metrics that both have, in the order of b; those that are 0 in both are left out."""
    before = {m.name: m for m in a}
    return [_change(before[m.name], m) for m in b if m.name in before and (m.value or before[m.name].value)]


def _counters(ncu: Sequence[Mapping[str, Any]]) -> list[Metric]:
    found = []
    times = [r.get("duration_ns") for r in ncu]
    if times and all(t is not None and t == t for t in times):
        found.append(Metric("time under ncu", float(sum(times)), "ns"))
    for name, key, factor, better in (
        ("SM of peak", "sm_percent", 0.01, "higher"),
        ("memory of peak", "memory_percent", 0.01, ""),
        ("tensor pipe of peak", "tensor_percent", 0.01, "higher"),
        ("measured occupancy", "measured_occupancy", 1.0, ""),
    ):
        known = [
            (r[key], r["duration_ns"])
            for r in ncu
            if all(r.get(k) is not None and r[k] == r[k] for k in (key, "duration_ns"))
        ]
        total = sum(ns for _, ns in known)
        if total:
            found.append(Metric(name, factor * sum(v * ns for v, ns in known) / total, "share", better))
    for name, key in (("DRAM read", "read_bytes"), ("DRAM written", "written_bytes")):
        values = [r.get(key) for r in ncu]
        if values and all(v is not None and v == v for v in values):
            found.append(Metric(name, float(sum(values)), "bytes"))
    return found


def _change(a: Metric, b: Metric) -> Change:
    if abs(b.value - a.value) <= TOLERANCE * max(abs(a.value), abs(b.value)):
        state = "same"
    elif not b.better:
        state = ""
    else:
        state = "better" if (b.value < a.value) == (b.better == "lower") else "worse"
    factor = None
    if b.better and a.value > 0 and b.value > 0:
        factor = a.value / b.value if b.better == "lower" else b.value / a.value
    return Change(b.name, b.unit, a.value, b.value, factor, state)
