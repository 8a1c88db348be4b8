"""The Kernels page put together: the form, the run it started, and the last answer beside it."""

from __future__ import annotations

import streamlit as st

from fusescope.core.records import BenchSpec
from fusescope.jobs import submit
from pages._ui.answer import answer, edit_loop, matching, runs
from pages._ui.app import url
from pages._ui.kernels import bench_form
from pages._ui.widgets import empty

_COMPARED = {key: key for key in ("op", "impls", "cases", "baseline", "dtype", "device", "cache")} | {
    "op": "operator",
    "impls": "implementations",
}


def form(state: url.State) -> tuple[str, BenchSpec | None, bool]:
    """The controls in their column."""
    return bench_form.draw(state)


def result(state: url.State, op: str, spec: BenchSpec | None, pressed: bool) -> None:
    """The answer to what was run, live while it runs, dimmed and dated once other settings are chosen."""
    key = state.seed("run_id", state.query.get("run"))
    before = state.seed("before", state.query.get("before"))
    if pressed and spec and not matching.running(st.session_state[key], spec.to_json(), _COMPARED):
        st.session_state["kernels/previous"] = st.session_state.get("kernels/shown")
        st.session_state[key] = submit.submit("bench", spec.to_json())
        st.session_state[before] = None
    if st.session_state[key] and not matching.of_kind(state, st.session_state[key], "bench", "a benchmark"):
        st.session_state[key] = None
    run_id = st.session_state[key]
    state.keep("run", run_id)
    if run_id is None:
        latest = runs.newest("bench", op, recorded=False)
        run_id = latest.id if latest else None
    if run_id is None:
        empty.kernels(state, op, spec)
        return
    run, records = runs.read(run_id), runs.records(run_id)
    st.session_state["kernels/shown"] = run_id
    edit_loop.banner(run)
    if st.session_state[before] and runs.exists(st.session_state[before]):
        state.keep("before", st.session_state[before])
        edit_loop.comparison(run, records, st.session_state[before])
    answer.draw(state, run_id, matching.differs(run, spec and spec.to_json(), _COMPARED))
    last = st.session_state.get("kernels/previous")
    if run.live and not records and last and last != run_id and runs.exists(last):
        answer.previous(last)
