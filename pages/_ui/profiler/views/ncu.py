"""Nsight Compute: speed of light, warp stall reasons and advice, each launch joined to the trace's."""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd
import streamlit as st

from fusescope.charts.escape import label
from fusescope.charts.profile import memory_flow, ncu
from pages._ui.app import url
from pages._ui.forms import fields
from pages._ui.profiler import counters, join, sentences
from pages._ui.profiler.data import Profile
from pages._ui.profiler.views import source
from pages._ui.widgets import elements, screen, style
from pages._ui.widgets.text import md

_HOW = (
    "Profile with Nsight Compute, import a .csv (details, raw or source page) or .ncu-rep, or join "
    "this trace with such a run of the same work."
)


def draw(state: url.State, found: Profile) -> None:
    """Charts and tables of the report; of a trace, those of the report that it is joined with."""
    if found.has("ncu_source"):
        source.draw(state, found)
        if not found.has("ncu_kernels"):
            return
    trace, report = join.choose(state, found)
    if report is None:
        sentences.lacks("Nsight Compute counters", _HOW)
        return
    rows = sentences.rows(report, "ncu_kernels")
    subtitle = sentences.subtitle(report)
    data = table(trace, report, rows)
    left, right = st.columns(2, gap="medium")
    with left:
        fig = ncu.speed_of_light(rows, subtitle, style.theme())
        elements.chart(fig, report.name("speed-of-light"), data, characters=screen.characters(0.5))
    with right:
        stalls = sentences.rows(report, "ncu_stalls") if report.has("ncu_stalls") else []
        names = {n: r["name"] for n, r in enumerate(rows)}
        elements.chart(
            ncu.stalls(stalls, names, subtitle, style.theme()),
            report.name("stalls"),
            pd.DataFrame(stalls) if stalls else None,
            characters=screen.characters(0.5),
        )
    _memory(state, report, rows, subtitle)
    elements.table(data, report.name("ncu"), height=400, why=sentences.why("ncu_kernels"))
    joined = data["trace time (µs)"].notna().sum() if "trace time (µs)" in data else 0
    elements.note(
        "Times under Nsight Compute are not latencies: launches are serialised, caches flushed, passes "
        "replayed."
        + (
            f" {joined} of {len(rows)} launches joined to the trace by name, grid, block and order."
            if trace is not None
            else ""
        )
    )
    if report.has("ncu_rules"):
        with st.expander("Advice of Nsight Compute"):
            for r in sentences.rows(report, "ncu_rules")[:40]:
                st.markdown(f"**{r['launch']}: {md(r.get('rule') or r.get('name'))}** {md(r.get('says'))}")


def _memory(state: url.State, report: Profile, rows: list[dict], subtitle: str) -> None:
    """The memory chart of one launch, the longest first."""
    flows = counters.flows(report) if report.has("ncu_metrics") else []
    there = [n for n, links in enumerate(flows) if len(links) > 1]
    if not there:
        return
    there.sort(key=lambda n: -(rows[n].get("duration_ns") or 0))
    names = {n: f"{n}: {label(rows[n]['name'], 60)}" for n in there}
    launch = there[0]
    if len(there) > 1:
        launch = fields.pick(
            state, "launch", "memory chart of launch", there, scope=report.id, format_func=names.get
        )
    ns = _known(rows[launch].get("duration_ns"))
    fig = memory_flow.flow(flows[launch], ns, rows[launch]["name"], subtitle, style.theme())
    numbers = pd.DataFrame([asdict(link) for link in flows[launch]])
    elements.chart(fig, report.name("memory-chart"), numbers)
    elements.note(
        "Bytes of one launch under Nsight Compute. L1: loads and stores; TMA passes it by, L2 counts both."
    )


def table(trace: Profile | None, report: Profile, rows: list[dict]) -> pd.DataFrame:
    """One row per launch of the report, with its time in the trace where there is one; columns without a
    value are left out."""
    there = join.launches(str(trace.path), trace.stamp) if trace is not None else []
    lines = []
    for n, (r, at) in enumerate(zip(rows, join.partners(trace, report), strict=True)):
        moved = [r.get(k) for k in ("read_bytes", "written_bytes")]
        line = {"launch": n, "kernel": r["name"]}
        if trace is not None:
            line["trace time (µs)"] = there[at]["dur_ns"] / 1e3 if at is not None else None
        line |= {"under ncu (µs)": _known(r.get("duration_ns"), 1e-3)}
        line |= {f"{word} (%)": _known(r.get(k)) for k, (word, _) in ncu.UNITS.items()}
        line |= {
            "measured occupancy (%)": _known(r.get("measured_occupancy"), 100),
            "waves": _known(r.get("waves")),
        }
        line["DRAM read (MiB)"], line["DRAM written (MiB)"] = (_known(v, 2**-20) for v in moved)
        lines.append(line)
    data = pd.DataFrame(lines)
    for column in data.columns[2:]:
        data[column] = data[column].astype(float)
    return data.dropna(axis=1, how="all")


def _known(value, factor: float = 1.0) -> float | None:
    return None if value is None or value != value else float(value) * factor
