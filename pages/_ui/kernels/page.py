"""The Kernels page: the form, the run it started, and its result."""

from __future__ import annotations

import streamlit as st

from fusescope import ops
from fusescope.core.records import BenchSpec
from pages._ui.answer import answer, edit_loop, matching
from pages._ui.app import run_data, url
from pages._ui.widgets.text import md

_COMPARED = {key: key for key in ("op", "impls", "cases", "baseline", "dtype", "device", "cache")} | {
    "op": "operator",
    "impls": "implementations",
    "cases": "shape",
}


def result(state: url.State, op: str, spec: BenchSpec | None, pressed: bool) -> None:
    """The result of what was run, live while it runs, dimmed and dated once other settings are chosen."""
    before = state.seed("before", state.query.get("before"))
    json = spec and spec.to_json()
    run_id = matching.shown(state, "bench", op, json, pressed, _COMPARED, "a benchmark")
    if run_id is None:
        matching.first(ops.load(op).TITLE, "kernels", "bench", json)
        _recording(state, op, spec)
        return
    run, records = run_data.read(run_id), run_data.records(run_id)
    st.session_state["kernels/shown"] = run_id
    edit_loop.banner(run)
    if st.session_state[before] and run_data.exists(st.session_state[before]):
        state.keep("before", st.session_state[before])
        edit_loop.comparison(run, records, st.session_state[before])
    answer.draw(state, run_id, matching.differs(run, json, _COMPARED))
    last = st.session_state.get("kernels/previous")
    if run.live and not records and last and last != run_id and run_data.exists(last):
        answer.previous(last)


def _recording(state: url.State, op: str, spec: BenchSpec | None) -> None:
    """The recorded run nearest to the current settings, badged with its device."""
    near = run_data.nearest(op, spec.cases[0]) if spec else None
    run_id, case = near or run_data.nearest(op, {}) or (None, None)
    if run_id is None:
        st.caption(f"No recorded run of {ops.load(op).TITLE} ships with this checkout.")
        return
    device = run_data.read(run_id).device_name.removeprefix("NVIDIA ")
    st.caption(f"Closest recorded run ({md(device)}):" if near else f"A recorded run ({md(device)}):")
    answer.draw(state, run_id, first=case if near and len(spec.cases) == 1 else answer.ALL)
