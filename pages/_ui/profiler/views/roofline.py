"""A profiled call under the roofline: at its minimum traffic, and at its measured traffic."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from fusescope.analysis import hardware
from fusescope.analysis.roofline import Ceiling
from fusescope.charts import numbers
from fusescope.charts.profile import moved_bytes
from fusescope.charts.profile.moved_bytes import Point
from pages._ui.app import url
from pages._ui.forms import fields
from pages._ui.profiler import cost, counters, join, sentences
from pages._ui.profiler.cost import Work
from pages._ui.profiler.data import Profile
from pages._ui.widgets import elements, style
from pages._ui.widgets.text import md


def draw(state: url.State, found: Profile) -> None:
    """The chart where FLOP and bytes are known, its numbers, and the theoretical bandwidth from the memory's
    clock."""
    trace, report = join.choose(state, found)
    if trace is not None and report is not None and join.other_work(trace, report):
        elements.note("The joined profile is of different work; its time and traffic are not used here.")
        trace, report = (trace, None) if trace is found else (None, report)
    work = cost.work(found.run)
    time, source_of_time = _time(trace, report)
    if work is None:
        sentences.lacks(
            "FLOP count",
            "An imported file does not say what was computed; profile an operator or model here.",
        )
    elif time is None:
        sentences.lacks("GPU kernel times", "The roofline needs them.")
    else:
        _chart(found, report, work, time, source_of_time)
    _bandwidth(state, found)


def _time(trace: Profile | None, report: Profile | None) -> tuple[float | None, str]:
    """ns of one call on the device, and its source: the trace where there is one."""
    if trace is not None and (ns := trace.kernel_ns()) is not None:
        return ns, "time of the trace's kernels"
    if report is not None:
        known = [
            r["duration_ns"]
            for r in sentences.rows(report, "ncu_kernels")
            if r.get("duration_ns") == r.get("duration_ns")
        ]
        calls = int(report.run.spec.get("calls") or 1)
        known = [k for k in known if k is not None]
        return (sum(known) / calls, "time under Nsight Compute, not a latency") if known else (None, "")
    return None, ""


def _chart(found: Profile, report: Profile | None, work: Work, time: float, source_of_time: str) -> None:
    points = [Point(work.title, "minimum", work.cost.flop_effective, work.cost.bytes, time)]
    moved = _moved(report)
    if moved:
        points.append(Point(work.title, "actual", work.cost.flop_effective, moved, time))
    points += [
        Point(work.title, level, work.cost.flop_effective, size, time)
        for level, size in _caches(report).items()
    ]
    roofs, source = cost.ceilings(found.run.device_name, found.summary, work)
    levels = _levels(report, {p.what for p in points}, roofs)
    roofs = roofs | levels
    fig = moved_bytes.plot(points, roofs, f"{sentences.subtitle(found)} · {source_of_time}", style.theme())
    data = pd.DataFrame(
        [
            {
                "traffic": p.what,
                "GFLOP": p.flop / 1e9,
                "MiB": p.bytes / 2**20,
                "time (µs)": p.ns / 1e3,
                "FLOP per byte": p.intensity,
                "TFLOP/s": p.tflops,
                "GB/s": p.bytes / p.ns,
            }
            for p in points
        ]
    )
    elements.chart(fig, found.name("roofline"), data)
    if source:
        elements.note(f"Data sheet: {md(source)}.")
    elements.table(data, found.name("roofline-numbers"))
    if moved:
        elements.note(
            f"Actual / minimum traffic: {numbers.ratio(moved / work.cost.bytes)}. Above 1 data is "
            "re-read; below 1 a cache served "
            "part of it."
        )
        if len(points) > 2:
            elements.note(
                "L2 and L1: the same FLOP over the bytes between L2 and the SMs, and of loads and stores at "
                "L1 (TMA passes it by). Left of actual, a cache served the rest. "
                + (
                    "Roofs of the caches: peak bytes per cycle at the clocks under Nsight Compute."
                    if levels
                    else "The roofs are DRAM's; ncu --section SpeedOfLight_HierarchicalSingleRooflineChart "
                    "collects those of the caches."
                )
            )
    else:
        elements.note(
            "Minimum = compulsory traffic of any kernel. Join a Nsight Compute run above to see the "
            "actual traffic."
        )
    if not roofs:
        elements.note("No ceilings known for this device; a benchmark on it measures them.")


def _moved(report: Profile | None) -> float | None:
    if report is None:
        return None
    rows = sentences.rows(report, "ncu_kernels")
    values = [r.get(k) for r in rows for k in ("read_bytes", "written_bytes")]
    known = [float(v) for v in values if v is not None and v == v]
    return (
        sum(known) / int(report.run.spec.get("calls") or 1) if known and len(known) == len(values) else None
    )


def _caches(report: Profile | None) -> dict[str, float]:
    """Bytes of one call by level of cache, where the report counts them for every launch."""
    if report is None or not report.has("ncu_metrics"):
        return {}
    calls = int(report.run.spec.get("calls") or 1)
    flows = counters.flows(report)
    found = {}
    for level in ("L1", "L2"):
        sizes = [link.bytes for links in flows for link in links if link.level == level]
        if sizes and len(sizes) == report.rows("ncu_kernels") and sum(sizes):
            found[level] = sum(sizes) / calls
    return found


def _levels(report: Profile | None, drawn: set[str], roofs: dict) -> dict[str, Ceiling]:
    """A roof for each level of cache that has a point, under the device's arithmetic rate."""
    if report is None or not report.has("ncu_metrics") or not roofs:
        return {}
    rate = next(iter(roofs.values())).tflops
    found = counters.peaks(str(report.path), report.stamp)
    return {f"{level} peak": Ceiling(gbps, rate) for level, gbps in found.items() if level in drawn}


def _bandwidth(state: url.State, found: Profile) -> None:
    with st.expander("Theoretical bandwidth from clock, bus and data rate"):
        clock = 877
        if found.has("telemetry"):
            data = sentences.frame(found, "telemetry")
            if "memory_mhz" in data and data["memory_mhz"].notna().any():
                clock = int(data["memory_mhz"].max())
        a, b, c = st.columns(3)
        mhz = fields.whole(state, "mhz", "memory clock (MHz)", 1, 50_000, clock, found.id, a)
        bits = fields.whole(state, "bits", "bus width (bit)", 8, 16_384, 4096, found.id, b)
        rate = fields.whole(state, "rate", "transfers per clock", 1, 16, 2, found.id, c)
        fields.refuse(state)
        value = hardware.theoretical_bandwidth(mhz, bits, rate)
        st.markdown(f"{mhz:,} MHz × {bits:,} bit × {rate} = **{numbers.three(value)} GB/s**")
        st.caption(
            "A V100: 877 MHz × 4096 bit × 2 = 898 GB/s. Take the bus width from the data sheet; the "
            "clock is the highest in the "
            "telemetry."
        )
