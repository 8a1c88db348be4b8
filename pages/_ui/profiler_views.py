"""The views of a profile: one function each, drawn only when it is the one looked at."""

from __future__ import annotations

import streamlit as st

from pages._ui import (
    profiler_device,
    profiler_diff,
    profiler_memory,
    profiler_ncu,
    profiler_occupancy,
    profiler_overview,
    profiler_roofline,
    profiler_tables,
    profiler_time,
    url,
)
from pages._ui.profiler_data import Profile

VIEWS = {
    "Overview": profiler_overview.draw,
    "Where time goes": profiler_time.where,
    "Time line": profiler_time.line,
    "Tables": profiler_tables.draw,
    "Occupancy": profiler_occupancy.draw,
    "Roofline": profiler_roofline.draw,
    "Nsight Compute": profiler_ncu.draw,
    "Memory": profiler_memory.draw,
    "Device": profiler_device.draw,
    "Compare": profiler_diff.draw,
    "Perfetto": profiler_time.perfetto_view,
}
NAMES = list(VIEWS)


def draw(state: url.State, found: Profile) -> None:
    """The choice of a view, and that view; ``draw(state, profile)`` of each says itself what it lacks."""
    key = state.seed("view", NAMES[0], url.one_of(NAMES))
    chosen = st.segmented_control("view", NAMES, key=key, label_visibility="collapsed", required=True)
    state.keep("view", chosen, NAMES[0])
    state.scope = found.id  # what the URL says beyond this belongs to this run
    VIEWS[chosen](state, found)
