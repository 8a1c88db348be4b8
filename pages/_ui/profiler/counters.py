"""What Nsight Compute counted of each launch, cached by what is on disk."""

from __future__ import annotations

import streamlit as st

from fusescope.analysis.profile import memory_flow
from fusescope.analysis.profile.memory_flow import Link, links
from fusescope.store import profile
from pages._ui.profiler import data
from pages._ui.profiler.data import Profile


def flows(report: Profile) -> list[list[Link]]:
    """The traffic between the levels of memory of each launch of a report; [] for a launch without it."""
    return _flows(str(report.path), report.rows("ncu_kernels"), report.stamp)


@st.cache_data(max_entries=32, show_spinner=False)
def peaks(path: str, stamp: str) -> dict[str, float]:
    """GB/s of L1 and L2 (``memory_flow.peaks``) of the first launch whose clocks the report has."""
    by: dict[int, list[dict]] = {}
    for launch, metric, value, unit in _metrics(path):
        by.setdefault(launch, []).append({"metric": metric, "value": value, "unit": unit})
    return next((found for rows in by.values() if (found := memory_flow.peaks(rows))), {})


@st.cache_data(max_entries=32, show_spinner=False)
def _flows(path: str, launches: int, stamp: str) -> list[list[Link]]:
    found: list[list[dict]] = [[] for _ in range(launches)]
    for launch, metric, value, _ in _metrics(path):
        if metric and 0 <= launch < launches:
            found[launch].append({"metric": metric, "value": value})
    return [links(rows) for rows in found]


def _metrics(path: str) -> list[tuple]:
    """(launch, metric, value, unit) of every row of the report's metrics."""
    table = profile.arrow(data.Path(path), "ncu_metrics", ["launch", "metric", "value", "unit"]).to_pydict()
    return list(zip(*(table[c] for c in ("launch", "metric", "value", "unit")), strict=True))
