"""The Kernels page put together: the form, the run it started, and the last answer beside it."""

from __future__ import annotations

import streamlit as st

from backend.charts import template
from backend.core.errors import RunError
from backend.core.records import BenchSpec, Run
from backend.jobs import submit
from pages._ui import answer, bench_form, edit_loop, empty, runs, url

_COMPARED = ("op", "impls", "cases", "baseline", "dtype", "device", "cache")


def form(state: url.State) -> tuple[str, BenchSpec | None, bool]:
    """The controls in their column."""
    return bench_form.draw(state)


def result(state: url.State, op: str, spec: BenchSpec | None, pressed: bool) -> None:
    """The answer to what was run, live while it runs, dimmed and dated once other settings are chosen."""
    key = state.seed("run_id", state.query.get("run"))
    before = state.seed("before", state.query.get("before"))
    if pressed and spec and not _running(st.session_state[key], spec):
        st.session_state["kernels/previous"] = st.session_state.get("kernels/shown")
        st.session_state[key] = submit.submit("bench", spec.to_json())
        st.session_state[before] = None
    if st.session_state[key] and not _is_bench(state, st.session_state[key]):
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
    answer.draw(state, run_id, _differs(run, spec))
    last = st.session_state.get("kernels/previous")
    if run.live and not records and last and last != run_id and runs.exists(last):
        answer.previous(last)


def _running(run_id: str | None, spec: BenchSpec) -> bool:
    """Whether just this is being measured already: a second click, or an impatient one, starts nothing."""
    if not run_id or not runs.exists(run_id):
        return False
    run = runs.read(run_id)
    return run.live and _comparable(run.spec) == _comparable(spec.to_json())


def _differs(run: Run, spec: BenchSpec | None) -> str | None:
    """Why the run on show is not the answer to what is chosen, None where it is (or was recorded elsewhere)."""
    if run.live or run.recorded or spec is None:
        return None
    asked, had = _comparable(spec.to_json()), _comparable(run.spec)
    changed = [k for k in _COMPARED if asked.get(k) != had.get(k)]
    if not changed:
        return None
    when = template.date(run.finished or run.started or run.created)
    words = ", ".join({"impls": "implementations", "op": "operator"}.get(k, k) for k in changed)
    return f"Answer of {when} to other settings ({words}). Press Run for the ones chosen now."


def _comparable(spec) -> dict:
    impls = set(spec.get("impls") or ()) | {spec.get("baseline")}
    return {k: spec.get(k) for k in _COMPARED} | {"impls": impls, "cases": [dict(c) for c in spec.get("cases") or ()]}


def _is_bench(state: url.State, run_id: str) -> bool:
    """Whether the URL's run can be shown here; else one sentence."""
    try:
        run = runs.read(run_id)
    except RunError as error:
        state.problems.append(f"The run of the URL cannot be shown: {error}.")
        return False
    if run.kind != "bench":
        state.problems.append(f"Run {run_id} is a {run.kind}, not a benchmark; open it on the Runs page.")
        return False
    return True
