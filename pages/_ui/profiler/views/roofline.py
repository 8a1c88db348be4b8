"""Where a profiled call stands under the roofline: at the bytes it must move, and at those it moved."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from fusescope.analysis import hardware
from fusescope.charts import numbers
from fusescope.charts.profile import moved_bytes
from fusescope.charts.profile.moved_bytes import Point
from pages._ui.app import style, url
from pages._ui.profiler import cost, join, sentences
from pages._ui.profiler.cost import Work
from pages._ui.profiler.data import Profile
from pages._ui.widgets import elements
from pages._ui.widgets.text import md


def draw(state: url.State, found: Profile) -> None:
    """The chart where FLOP and bytes are known, its numbers, and the theoretical bandwidth from the memory's
    clock."""
    trace, report = join.choose(state, found)
    if trace is not None and report is not None and join.other_work(trace, report):
        elements.note(
            "The profile it is joined with is of other work: neither its time nor its bytes are placed here."
        )
        trace, report = (trace, None) if trace is found else (None, report)
    work = cost.work(found.run)
    time, whose = _time(trace, report)
    if work is None:
        sentences.lacks(
            "FLOP count",
            "An imported file does not say what was computed; profile an operator or model here to place it.",
        )
    elif time is None:
        sentences.lacks("time of kernels on a GPU", "The roofline is that of a device's kernels.")
    else:
        _chart(found, report, work, time, whose)
    _bandwidth(state, found)


def _time(trace: Profile | None, report: Profile | None) -> tuple[float | None, str]:
    """ns of one call on the device, and whose number it is: the trace's where there is one."""
    if trace is not None and trace.has("kernels"):
        rows = sentences.rows(trace, "kernel_summary")
        steps = max(1, trace.rows("steps"))
        return sum(r["total_ns"] for r in rows) / steps, "time of the trace's kernels"
    if report is not None:
        known = [
            r["duration_ns"]
            for r in sentences.rows(report, "ncu_kernels")
            if r.get("duration_ns") == r.get("duration_ns")
        ]
        calls = int(report.run.spec.get("calls") or 1)
        known = [k for k in known if k is not None]
        return (sum(known) / calls, "time under Nsight Compute, which is no latency") if known else (None, "")
    return None, ""


def _chart(found: Profile, report: Profile | None, work: Work, time: float, whose: str) -> None:
    points = [Point(work.title, "requested", work.cost.flop_effective, work.cost.bytes, time)]
    moved = _moved(report)
    if moved:
        points.append(Point(work.title, "moved", work.cost.flop_effective, moved, time))
    roofs, source = cost.ceilings(found.run.device_name, found.summary, work)
    fig = moved_bytes.plot(points, roofs, f"{sentences.subtitle(found)} · {whose}", style.theme())
    data = pd.DataFrame(
        [
            {
                "bytes are": p.what,
                "GFLOP": p.flop / 1e9,
                "MB": p.bytes / 1e6,
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
            f"Moved over requested: {numbers.ratio(moved / work.cost.bytes)}. Above 1 the call reads again what it had; below 1 a cache kept some of it."
        )
    else:
        elements.note(
            "Requested bytes are the least any kernel must move. What was moved is known where Nsight Compute ran: join such a run above."
        )
    if not roofs:
        elements.note("No ceilings are known for this device: a benchmark on it measures them.")


def _moved(report: Profile | None) -> float | None:
    if report is None:
        return None
    rows = sentences.rows(report, "ncu_kernels")
    values = [r.get(k) for r in rows for k in ("read_bytes", "written_bytes")]
    known = [float(v) for v in values if v is not None and v == v]
    return (
        sum(known) / int(report.run.spec.get("calls") or 1) if known and len(known) == len(values) else None
    )


def _bandwidth(state: url.State, found: Profile) -> None:
    with st.expander("Theoretical bandwidth from clock, bus and data rate"):
        clock = 877
        if found.has("telemetry"):
            data = sentences.frame(found, "telemetry")
            if "memory_mhz" in data and data["memory_mhz"].notna().any():
                clock = int(data["memory_mhz"].max())
        a, b, c = st.columns(3)
        mhz = a.number_input(
            "memory clock (MHz)", 1, 50_000, key=state.seed("mhz", clock, url.whole(1, 50_000), found.id)
        )
        bits = b.number_input(
            "bus width (bit)", 8, 16_384, key=state.seed("bits", 4096, url.whole(8, 16_384), found.id)
        )
        rate = c.number_input(
            "transfers a clock", 1, 16, key=state.seed("rate", 2, url.whole(1, 16), found.id)
        )
        value = hardware.theoretical_bandwidth(mhz, bits, rate)
        st.markdown(f"{mhz:,} MHz × {bits:,} bit × {rate} = **{numbers.three(value)} GB/s**")
        st.caption(
            "A V100 has 877 MHz × 4096 bit × 2 = 898 GB/s. The bus width is on the data sheet; the clock is the highest that telemetry saw."
        )
        for name, value, default in (("mhz", mhz, clock), ("bits", bits, 4096), ("rate", rate, 2)):
            state.keep(name, value, default)
