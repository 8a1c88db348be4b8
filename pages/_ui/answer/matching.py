"""Which run a page shows, and whether it is the result for the current settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from fusescope.charts import captions
from fusescope.core.errors import RunError
from fusescope.core.records import Run
from fusescope.jobs import submit
from pages._ui.app import callbacks, run_data, url

Names = Mapping[str, str]
"""The keys of a specification that make a result what it is, and what each is called."""


def shown(
    state: url.State, kind: str, op: str, spec: Mapping | None, pressed: bool, names: Names, called: str
) -> str | None:
    """The run to show: the one that was just started, else the URL's or the last one opened, else this
    machine's newest of ``op``; None without any. ``called``: what a run of the kind is called."""
    key = state.seed("run_id", state.query.get("run"))
    if pressed and spec and not _running(st.session_state[key], spec, names):
        start(state.page, kind, spec)
    if st.session_state[key] and not _of_kind(state, st.session_state[key], kind, called):
        st.session_state[key] = None
    run_id = st.session_state[key]
    state.keep("run", run_id)
    latest = None if run_id else run_data.newest(kind, op, recorded=False)
    return latest.id if latest else run_id


def start(page: str, kind: str, spec: Mapping) -> None:
    """Submit a job and show its run on the page."""
    st.session_state[f"{page}/previous"] = st.session_state.get(f"{page}/shown")
    st.session_state[f"{page}/run_id"] = submit.submit(kind, dict(spec))
    st.session_state[f"{page}/before"] = None


def first(title: str, page: str, kind: str, spec: Mapping | None) -> None:
    """The empty state: one sentence and one button."""
    st.markdown(f"**{title}** has not been measured here yet. Press Run; the result appears here.")
    st.button(
        "Run a first comparison",
        type="primary",
        disabled=spec is None,
        key="empty/run",
        on_click=callbacks.careful(start),
        args=(page, kind, spec),
    )


def differs(run: Run, spec: Mapping | None, names: Names) -> str | None:
    """Why the run on show is not the result for the current settings; None where it is, or was recorded
    elsewhere."""
    if run.live or run.recorded or spec is None:
        return None
    wanted, had = _comparable(spec, names), _comparable(run.spec, names)
    changed = [name for key, name in names.items() if wanted[key] != had[key]]
    if not changed:
        return None
    settings = ", ".join(changed)
    return (
        f"This result of {captions.when(run)} is for different settings ({settings}). "
        "Press Run to measure the current ones."
    )


def _running(run_id: str | None, spec: Mapping, names: Names) -> bool:
    """Whether just this is being measured already: a second click starts nothing."""
    if not run_id or not run_data.exists(run_id):
        return False
    run = run_data.read(run_id)
    return run.live and _comparable(run.spec, names) == _comparable(spec, names)


def _of_kind(state: url.State, run_id: str, kind: str, called: str) -> bool:
    """Whether the URL's run can be shown on this page; else one sentence says why not."""
    try:
        run = run_data.read(run_id)
    except RunError as error:
        state.problems.append(f"The run in the URL cannot be shown: {error}.")
        return False
    if run.kind != kind:
        state.problems.append(f"Run {run_id} is a {run.kind}, not {called}; open it on the Runs page.")
        return False
    return True


def _comparable(spec: Mapping, names: Names) -> dict[str, Any]:
    impls = {*(spec.get("impls") or ()), spec.get("baseline")}
    cases = [dict(c) for c in spec.get("cases") or ()]
    return {key: spec.get(key) for key in names} | {"impls": impls, "cases": cases}
