"""What Nsight Compute counted of each launch, cached by what is on disk."""

from __future__ import annotations

import streamlit as st

from fusescope.analysis.profile.memory_flow import Link, links
from fusescope.store import profile
from pages._ui.profiler import data
from pages._ui.profiler.data import Profile


def flows(report: Profile) -> list[list[Link]]:
    """The traffic between the levels of memory of each launch of a report; [] for a launch without it."""
    return _flows(str(report.path), report.rows("ncu_kernels"), report.stamp)


@st.cache_data(max_entries=32, show_spinner=False)
def _flows(path: str, launches: int, stamp: str) -> list[list[Link]]:
    found: list[list[dict]] = [[] for _ in range(launches)]
    table = profile.arrow(data.Path(path), "ncu_metrics", ["launch", "metric", "value"]).to_pydict()
    for launch, metric, value in zip(table["launch"], table["metric"], table["value"], strict=True):
        if metric and 0 <= launch < launches:
            found[launch].append({"metric": metric, "value": value})
    return [links(rows) for rows in found]
