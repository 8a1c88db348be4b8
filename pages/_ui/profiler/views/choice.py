"""The views of a profile: one function each, drawn only when it is the one looked at."""

from __future__ import annotations

import streamlit as st

from pages._ui.app import url
from pages._ui.profiler.data import Profile
from pages._ui.profiler.views import device, diff, memory, ncu, occupancy, overview, roofline, tables, time

VIEWS = {
    "Overview": overview.draw,
    "Where time goes": time.where,
    "Time line": time.line,
    "Tables": tables.draw,
    "Occupancy": occupancy.draw,
    "Roofline": roofline.draw,
    "Nsight Compute": ncu.draw,
    "Memory": memory.draw,
    "Device": device.draw,
    "Compare": diff.draw,
    "Perfetto": time.perfetto_view,
}
NAMES = list(VIEWS)


def draw(state: url.State, found: Profile) -> None:
    """The choice of a view, and that view; ``draw(state, profile)`` of each says itself what it lacks."""
    key = state.seed("view", NAMES[0], url.one_of(NAMES))
    chosen = st.segmented_control("view", NAMES, key=key, label_visibility="collapsed", required=True)
    state.keep("view", chosen, NAMES[0])
    state.scope = found.id  # what the URL says beyond this belongs to this run
    VIEWS[chosen](state, found)
