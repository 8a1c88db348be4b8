"""The Kernels page: the form, the run it started, and its result."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from fusescope import ops
from fusescope.core.records import BenchSpec, Run
from pages._ui.answer import answer, edit_loop, matching, nearest
from pages._ui.app import device, run_data, url

COMPARED = {key: key for key in ("op", "impls", "cases", "baseline", "dtype", "device", "cache")} | {
    "op": "operator",
    "impls": "implementations",
    "cases": "shape",
}


def result(state: url.State, op: str, spec: BenchSpec | None, pressed: bool) -> None:
    """The result of what was run, live while it runs, dimmed and dated once other settings are chosen."""
    json, where = spec and spec.to_json(), nearest.recorded_on(state)
    run_id = matching.shown(state, "bench", op, json, pressed, COMPARED, "a benchmark")
    if run_id is None:
        matching.first(ops.load(op).TITLE, "kernels", json)
        _recording(state, op, json, where)
    else:
        of_run(state, run_id, json)


def of_run(state: url.State, run_id: str, json: Mapping | None) -> None:
    """One run with what an edit of its sources changed; ``json``: the form's specification, None where it is
    not valid."""
    before = state.seed("before", state.query.get("before"))
    run, records = run_data.read(run_id), run_data.records(run_id)
    st.session_state["kernels/shown"] = run_id
    edit_loop.banner(run)
    if st.session_state[before] and run_data.exists(st.session_state[before]):
        state.keep("before", st.session_state[before])
        edit_loop.comparison(run, records, st.session_state[before])
    matching.notice(state, run, json, COMPARED)
    answer.draw(state, run_id, dimmed=matching.earlier(state, run, json, COMPARED))
    last = st.session_state.get("kernels/previous")
    if run.live and not records and last and last != run_id and run_data.exists(last):
        answer.previous(last)


def able(run: Run) -> list[str]:
    """The implementations of a run's operator that can run on the chosen device."""
    op = str(run.spec.get("op"))
    arch = device.facts(device.current()).get("arch")
    listed = ops.implementations(op, device.current(), arch) if op in ops.names() else []
    return [i.name for i in listed if i.reason is None]


def _recording(state: url.State, op: str, json: Mapping | None, where: str | None) -> None:
    """The recorded case nearest to the current settings, on the device ``where`` if any, with what
    differs."""
    asked = nearest.of_spec(json or {"op": op}, where)
    found = nearest.find(asked, recorded=True)
    if found is None:
        st.caption(f"No recorded run of {ops.load(op).TITLE} ships with this checkout.")
        return
    st.caption(nearest.caption(found, asked))
    first = nearest.case_name(found) if json and len(json["cases"]) == 1 else None
    answer.draw(state, found.run, first=first or answer.ALL)
