"""The Grid view: attention over all masks and shapes measured on a device, in whichever run."""

from __future__ import annotations

import dataclasses

import pandas as pd
import streamlit as st

from fusescope.charts.bench import attention_grid
from fusescope.core.records import Record, Run
from fusescope.store import library
from pages._ui.app import cached_chart, run_data
from pages._ui.widgets import elements
from pages._ui.widgets.text import plural

_MOST = 60  # newest runs that are read
_CHARTS = ("speed-up", "worst first", "rates")
_MODES = {"kernel time": "graph", "eager call": "eager"}


def draw(run: Run, baseline_subtitle: str, theme: str) -> None:
    """Our best kernel against the best peer of each cell, over this run and the others of its device and data
    type."""
    if run.spec.get("op") != "attention":
        st.caption(
            "The grid compares our best attention kernel with the best peer for each mask and shape; "
            "open an attention run."
        )
        return
    found = _runs(run)
    choices = st.container(horizontal=True, gap="medium")
    chart = (
        choices.segmented_control("chart", _CHARTS, default=_CHARTS[0], key="grid/chart", required=True)
        or _CHARTS[0]
    )
    on_gpu = str(run.spec.get("device", "")).startswith("cuda")
    time = (
        choices.segmented_control("time", list(_MODES), default="kernel time", key="grid/time", required=True)
        if on_gpu
        else "eager call"
    )
    mode = _MODES[time or "kernel time"]
    records = [r for r in _records(found) if r.dtype == run.spec.get("dtype")]
    cells = attention_grid.cells(records, mode)
    key = ("grid", chart, mode, theme, run.id, tuple(s.id for s in found), len(records))
    fig = cached_chart.once(key, lambda: _figure(chart, cells, run, baseline_subtitle, theme))
    elements.chart(fig, f"{run.id}-grid", lambda: _table(cells))
    elements.note(
        f"{attention_grid.summary(cells)} From {plural(len(found), 'run')} on {run.device_name}; of "
        "several results for a "
        "kernel and case the newest counts."
    )


def _figure(chart: str, cells, run: Run, subtitle: str, theme: str):
    if chart == "speed-up":
        return attention_grid.by_mask_and_shape(cells, subtitle, theme)
    if chart == "worst first":
        return attention_grid.worst_first(cells, subtitle, theme)
    rates = (run.environment.get("ceilings") or {}).get("matrix_tflops") or {}
    return attention_grid.rates(cells, rates.get(run.spec.get("dtype")), subtitle, theme)


def _runs(run: Run) -> list[Run]:
    """Runs of attention on the same device, oldest first, this one among them."""
    listed, _ = library.runs(kind="bench", op="attention", limit=_MOST)
    same = {r.id: r for r in listed if r.device_name == run.device_name} | {run.id: run}
    return sorted(same.values(), key=lambda r: (r.created or 0, r.id))


def _records(found: list[Run]) -> list[Record]:
    return [r for s in found for r in run_data.records(s.id)]


def _table(cells) -> pd.DataFrame:
    return pd.DataFrame([dataclasses.asdict(c) | {"ratio": c.ratio} for c in cells])
