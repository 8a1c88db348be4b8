"""The overview: the verdict with its numbers, steps, links, idle time and the longest kernels."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from fusescope.analysis.profile.device_time import DeviceTime
from fusescope.analysis.profile.verdict import verdict
from fusescope.analysis.roofline import attainable
from fusescope.charts import numbers
from fusescope.charts.numbers import plural
from fusescope.charts.profile import steps
from pages._ui.app import url
from pages._ui.profiler import advice, baseline, cost, data, join, sentences
from pages._ui.profiler.data import Profile
from pages._ui.profiler.views import device, memory, ncu, source
from pages._ui.routes import downloads
from pages._ui.widgets import elements, html_table, screen, style
from pages._ui.widgets.text import md

_TOP = 12
_NAME = 80  # characters of a kernel in a sentence
_UNDER_NCU = "under ncu (µs)"
_CAUSES = {
    "host": "host had not launched yet",
    "synchronised": "host synchronised, then launched",
    "launched": "already launched: launch latency or a dependency",
    "profiler": "profiler overhead",
    "unknown": "no launch known",
}


def draw(state: url.State, found: Profile) -> None:
    """The verdict and the main figures."""
    if found.trace is not None:
        address = downloads.address(found.id, found.trace_name)
        st.link_button("Download Chrome trace", address, key="profiler/trace")
    if sentences.tables_missing(found):
        return
    summary = found.summary or {}
    if summary.get("source") == "snapshot":
        memory.overview(summary)
    elif summary.get("source") == "ncu-source":
        source.overview(found)
    else:
        _verdict(found, summary)
        advice.draw(found)
        if found.rank is None:
            baseline.draw(state, found)
    left, right = st.columns([1.5, 1], gap="medium")
    with left:
        if found.has("steps"):
            rows = sentences.rows(found, "steps")
            if parts := data.device_time(str(found.path), found.stamp):
                rows = steps.rows(rows, parts.steps)
            fig = steps.bars(rows, sentences.subtitle(found), style.theme())
            elements.chart(fig, found.name("steps"), pd.DataFrame(rows), characters=screen.characters(0.6))
        elif found.has("kernels"):
            st.caption("The trace has no steps; torch.profiler's schedule marks them.")
    with right:
        _coverage(summary)
        _idle(summary)
        device.streams(data.device_time(str(found.path), found.stamp))
    _kernels(found)
    _totals(found, summary)
    sentences.notes(found)


def _verdict(found: Profile, summary: dict) -> None:
    counters = join.counters(found)
    work = cost.work(found.run)
    intensity = work.cost.flop_effective / work.cost.bytes if work and work.cost.bytes else None
    roofs = cost.ceilings(found.run.device_name, summary, work)[0] if work else {}
    roof = next(iter(roofs.values()), None)
    devices = summary.get("devices") or ()
    parts, steps = data.device_time(str(found.path), found.stamp), found.rows("steps")
    limit = verdict(
        summary, counters, intensity, roof and roof.ridge, _reached(found, work, roof), parts, steps
    )
    span = sum(d["last_ns"] - d["first_ns"] for d in devices)
    busy = sum(d["busy_ns"] for d in devices)
    rows = summary.get("rows", {})
    if not devices and not found.has("ncu_kernels"):
        _of_host(found, rows)
        return
    st.subheader(
        {"inconclusive": "What limits it is not known"}.get(limit.kind, limit.kind.capitalize()), anchor=False
    )
    st.markdown(_because(limit.because) + _longest(found))
    if devices:
        figures = [
            (_on_device(steps), numbers.time(span / 1e6), "first to last activity"),
            ("device busy", numbers.percent(busy / span) if span else numbers.NA, _busy_help(parts)),
            ("kernels", f"{rows.get('kernels', 0):,}", None),
        ]
        counted = (("operators", "operators", "on the host"), ("memcpy/memset", "copies", None))
        figures += [(word, f"{rows[name]:,}", text) for word, name, text in counted if rows.get(name)]
    else:
        figures = [("kernels", f"{len(counters):,}", "profiled launches")] + [
            (word, _mean(counters, key, factor), "measured; mean over launches, weighted by time")
            for word, key, factor in (
                ("SM", "sm_percent", 0.01),
                ("memory", "memory_percent", 0.01),
                ("tensor pipe", "tensor_percent", 0.01),
                ("occupancy", "measured_occupancy", 1.0),
            )
        ]
    elements.metrics(figures)


def _because(reasons: Sequence[str]) -> str:
    """The reasons as one sentence of Markdown, more than three as a line each."""
    told = [md(r) for r in reasons]
    told = told if len(told) > 3 else ["; ".join(told)]
    return "  \n".join(f"{t[:1].upper()}{t[1:]}." for t in told)


def _on_device(count: int) -> str:
    return f"on the device, {plural(count, 'step')}" if count else "on the device"


def _busy_help(parts: DeviceTime | None) -> str:
    waits = "; a communication kernel counts while it waits for other ranks"
    return "union over streams" + (waits if parts and parts.communication else "")


def _longest(found: Profile) -> str:
    """The kernel with the largest share of the kernel time, as a sentence of Markdown."""
    rows = sentences.rows(found, "kernel_summary") if found.has("kernel_summary") else []
    if not rows:
        return ""
    first = max(rows, key=lambda r: r["total_ns"])
    name = first["name"] if len(first["name"]) <= _NAME else f"{first['name'][: _NAME - 1]}…"
    return (
        f"  \nLongest kernel: **{md(name)}**, {numbers.percent(first['share'])} of the kernel time: "
        f"{plural(first['calls'], 'call')}, {numbers.time(first['total_ns'] / 1e6)} total."
    )


def _reached(found: Profile, work, roof) -> float | None:
    """Share of the rate attainable at the work's intensity that the kernels of a step reach."""
    ns = found.kernel_ns()
    if work is None or roof is None or not ns or not work.cost.bytes:
        return None
    most = attainable(work.cost.flop_effective / work.cost.bytes, roof)
    return work.cost.flop_effective / ns / 1e3 / most if most else None


def _mean(rows: list[dict], key: str, factor: float) -> str:
    known = [
        (r[key], r["duration_ns"])
        for r in rows
        if all(r.get(k) is not None and r[k] == r[k] for k in (key, "duration_ns"))
    ]
    total = sum(ns for _, ns in known)
    return numbers.percent(factor * sum(v * ns for v, ns in known) / total) if total else numbers.NA


def _of_host(found: Profile, rows: dict) -> None:
    """A trace without a GPU: what the host did."""
    table = sentences.rows(found, "operator_summary") if found.has("operator_summary") else []
    st.subheader("No GPU in this profile", anchor=False)
    own = sum(r["self_host_ns"] for r in table)
    by_name: dict[str, int] = {}
    for r in table:  # of which each has a row for each of its shapes
        by_name[r["name"]] = by_name.get(r["name"], 0) + r["self_host_ns"]
    span, taken = data.open_time(str(found.path), found.stamp) if found.has("operators") else (0, 0)
    if by_name:
        first = max(by_name, key=by_name.get)
        st.markdown(
            f"The host's operators took {numbers.time(own / 1e6)}; {md(first)} accounts for "
            f"{numbers.percent(by_name[first] / max(1, own))}."
        )
    figures = [
        ("operators", f"{rows.get('operators', 0):,}", None),
        ("self time", numbers.time(own / 1e6), "summed over threads"),
        ("span", numbers.time(span / 1e6), "first operator to the end of the last"),
        (
            "in no operator",
            numbers.percent(1 - taken / span) if span else numbers.NA,
            "of the span: Python between operators, other libraries, waiting",
        ),
        ("steps", f"{found.rows('steps'):,}", None),
    ]
    elements.metrics(figures)


def _coverage(summary: dict) -> None:
    covered = summary.get("coverage") or {}
    if not covered.get("kernels"):
        return
    st.markdown("**Kernels linked to**")
    by = {k: v for k, v in (covered.get("by") or {}).items() if v}
    lines = [
        ("a launch", sentences.share(covered.get("launch")), "by correlation"),
        (
            "an operator",
            sentences.share(covered.get("operator")),
            ", ".join(f"{v:,} by {k}" for k, v in by.items()) or "none",
        ),
        ("a module", sentences.share(covered.get("module")), "hooks or stacks in the trace"),
    ]
    html_table.facts(lines)


def _idle(summary: dict) -> None:
    idle = {k: v for k, v in (summary.get("idle") or {}).items() if v.get("gaps")}
    if not idle:
        return
    st.markdown("**Idle time by cause**")
    html_table.facts(
        [
            (
                _CAUSES.get(cause, cause),
                numbers.time(row["total_ns"] / 1e6),
                plural(row["gaps"], "gap"),
            )
            for cause, row in sorted(idle.items(), key=lambda i: -i[1]["total_ns"])
        ]
    )


def _kernels(found: Profile) -> None:
    if found.has("ncu_kernels") and not found.has("kernel_summary"):
        table = ncu.table(None, found, sentences.rows(found, "ncu_kernels"))
        if _UNDER_NCU in table:
            table = table.sort_values(_UNDER_NCU, ascending=False)
        st.markdown("**Longest launches**")
        elements.table(table.head(_TOP), found.name("longest"), table, why=sentences.why("ncu_kernels"))
        return
    if not found.has("kernel_summary"):
        if found.has("operator_summary"):
            table = (
                sentences.frame(found, "operator_summary")
                .sort_values("self_host_ns", ascending=False)
                .head(_TOP)
            )
            st.markdown("**Longest operators**")
            _filled(table[["name", "shapes", "calls", "host_ns", "self_host_ns"]], found, table)
        return
    table = sentences.frame(found, "kernel_summary").head(_TOP)
    columns = [
        "name",
        "calls",
        "total_ns",
        "share",
        "mean_ns",
        "occupancy",
        "grid_occupancy",
        "limiter",
        "operator",
        "module",
    ]
    st.markdown("**Longest kernels**")
    _filled(table[columns], found, table)
    if cut := sentences.cut_names(sentences.frame(found, "kernel_summary")):
        st.caption(cut)


def _filled(columns: pd.DataFrame, found: Profile, table: pd.DataFrame) -> None:
    """The table's columns that have a value in any row, and once which have none and why."""
    shown, lacks = sentences.without_empty(sentences.units(columns))
    elements.table(shown, found.name("longest"), table, why=sentences.why())
    if lacks:
        st.caption(lacks)


def _totals(found: Profile, summary: dict) -> None:
    totals = summary.get("totals") or {}
    if not totals:
        return
    with st.expander("Totals by category"):
        table = pd.DataFrame(
            [
                {"category": k or "(none)", "events": v["events"], "total_ns": v["total_ns"]}
                for k, v in totals.items()
            ]
        )
        elements.table(sentences.units(table), found.name("totals"), table)
