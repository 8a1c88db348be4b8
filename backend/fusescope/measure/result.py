"""From samples to a record: medians with intervals, the paired speed-up, rates, resources, and what really
ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fusescope.core.machine.conditions import Conditions
from fusescope.core.records import HEADLINE, BenchSpec, Rate, Record, Resources, Speedup, Times
from fusescope.measure import compare
from fusescope.measure.candidate import Candidate
from fusescope.measure.checking import settings
from fusescope.measure.device import device_state
from fusescope.measure.timing import launches
from fusescope.ops.base import Cost


def record(
    spec: BenchSpec,
    values: Mapping[str, Any],
    c: Candidate,
    baseline: Candidate | None,
    cost: Cost,
    facts: Mapping,
) -> Record:
    """The record of one candidate of a finished case; ``baseline`` may be the candidate itself, one without
    times, or none."""
    common = dict(op=spec.op, impl=c.name, case=dict(values), dtype=spec.dtype, device=spec.device)
    common |= dict(accuracy=c.accuracy, source_hash=c.info.source_hash)
    if c.status is not None:
        return Record(status=c.status, reason=c.reason, **common)
    times, now = c.times(), conditions(c, baseline)
    seconds = times[main_mode(c)].median / 1e3
    return Record(
        status="ok",
        time_ms=Times(first=c.first_ms, **times),
        speedup=speedup(c, baseline, compare.Stop.of(spec)),
        tflops=Rate(cost.flop_effective / seconds / 1e12, cost.flop_executed / seconds / 1e12),
        gbps=cost.bytes / seconds / 1e9,
        throttled=now.clock_note is not None,
        conditions=now,
        resources=resources(c, facts),
        backend=getattr(c.run, "backend", None) or launches.backend_name(c.launches) or c.info.source,
        **common,
    )


def conditions(c: Candidate, baseline: Candidate | None) -> Conditions:
    """The device over all of its modes, clocks in the main one, and settings that it changed."""
    mode = main_mode(c)
    states = [state for series in c.series.values() for state in series.states]
    base = baseline.clocks.get(mode, ()) if baseline is not None else ()
    found = device_state.conditions(states, c.clocks.get(mode, ()), base, c.compared)
    return replace(found, settings=settings.sentence(c.changed))


def main_mode(c: Candidate) -> str:
    return next(mode for mode in HEADLINE if mode in c.series)


def speedup(c: Candidate, baseline: Candidate | None, stop: compare.Stop) -> Speedup | None:
    """Of the first mode that both have; None where there is no baseline, or where it has no times."""
    if baseline is None:
        return None
    mode = next((m for m in HEADLINE if m in c.series and m in baseline.series), None)
    return compare.speedup(baseline.series[mode], c.series[mode], stop) if mode else None


def resources(c: Candidate, facts: Mapping[str, Any]) -> Resources | None:
    """Of the largest kernel that ran, with the compiler's spill count where the kernel is ours and the
    compiler's figures name a kernel with as many registers; None on the CPU."""
    capability = facts.get("compute_capability")
    if not c.launches or not capability:
        return None
    spills = None
    if c.info.kind == "ours" and c.info.source and facts.get("arch"):
        from fusescope.kernels import report

        family = c.info.source.split("/")[-2]
        built = facts["arch"].rstrip("a")
        for arch in (built, built + "a"):
            compiled = {launches.short_name(k.name): k for k in report.resources(family, c.name, arch)}
            main = max(c.launches, key=lambda item: item.blocks * item.threads)
            match = compiled.get(launches.short_name(main.name))
            if match and match.registers == main.registers:
                spills = match.spills
    major, minor = (int(n) for n in str(capability).split("."))
    return launches.resources(c.launches, (major, minor), spills)
