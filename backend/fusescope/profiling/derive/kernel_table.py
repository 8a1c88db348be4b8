"""Kernels and operators of a Chrome trace written by torch.profiler, summed by name."""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path


def read_events(path: Path) -> list[dict]:
    """The events of a trace, .json or .json.gz; a bare list of events is a trace too. ValueError where it is
    neither."""
    opener = gzip.open if path.name.endswith(".gz") else open
    with opener(path, "rb") as f:
        data = json.load(f)
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(events, list):
        raise ValueError(f"{path.name} holds no list of trace events")
    return events


def table(events: Iterable[dict], flop: dict[str, int] | None = None) -> dict:
    """{"unit": "us", "steps", "kernels_per_step", "linked", "kernels": […], "operators": […]}, both by total
    time, falling.

    A kernel: name, calls, total_us, mean_us, min_us, max_us, grid, block, registers, shared_bytes, streams;
    launch figures are those of its first launch. An operator (cpu_op): name, calls, total_us with its
    children, flop (where torch gives it). A kernel belongs to the step in which it was launched, by
    correlation; ``linked`` is the share for which that is known.
    """
    events = [e for e in events if e.get("ph") == "X"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    steps = sorted(
        (e["ts"], e["ts"] + e["dur"])
        for e in events
        if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep#")
    )
    launched = {
        e["args"]["correlation"]: e["ts"]
        for e in events
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {})
    }
    counts, linked = [0] * len(steps), 0
    for kernel in kernels:
        at = launched.get(kernel.get("args", {}).get("correlation"))
        if at is None:
            continue
        linked += 1
        n = bisect_right(steps, (at, float("inf"))) - 1
        if n >= 0 and at <= steps[n][1]:
            counts[n] += 1
    return {
        "unit": "us",
        "steps": len(steps),
        "kernels_per_step": counts,
        "linked": linked / len(kernels) if kernels else None,
        "kernels": _by_name(kernels, _launch),
        "operators": _by_name(
            (e for e in events if e.get("cat") == "cpu_op"), lambda e: {"flop": (flop or {}).get(e["name"])}
        ),
    }


def complaint(found: dict, on_gpu: bool) -> str | None:
    """Why the trace should not be trusted: no kernel on a GPU, or not the same number in every step; None =
    nothing odd."""
    counts = found["kernels_per_step"]
    if on_gpu and not found["kernels"]:
        return "the trace holds no GPU kernel: another profiler may hold the device's one CUPTI subscription"
    if on_gpu and len(set(counts)) > 1:
        launched = ", ".join(map(str, counts))
        return f"the steps launched different numbers of kernels ({launched}): more warm-up is needed"
    return None


def _by_name(events: Iterable[dict], extra) -> list[dict]:
    rows: dict[str, dict] = {}
    for e in events:
        us = float(e.get("dur", 0.0))
        row = rows.get(e["name"])
        if row is None:
            first = extra(e)
            row = rows[e["name"]] = {
                "name": e["name"],
                "calls": 0,
                "total_us": 0.0,
                "min_us": us,
                "max_us": us,
                **first,
            }
        row["calls"] += 1
        row["total_us"] += us
        row["min_us"], row["max_us"] = min(row["min_us"], us), max(row["max_us"], us)
        stream = e.get("args", {}).get("stream")
        if "streams" in row and stream not in row["streams"]:
            row["streams"].append(stream)
    for row in rows.values():
        row["mean_us"] = row["total_us"] / row["calls"]
    return sorted(rows.values(), key=lambda r: -r["total_us"])


def _launch(e: dict) -> dict:
    a = e.get("args", {})
    return {
        "grid": a.get("grid"),
        "block": a.get("block"),
        "registers": a.get("registers per thread"),
        "shared_bytes": a.get("shared memory"),
        "streams": [a.get("stream")],
    }
