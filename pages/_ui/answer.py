"""The answer of a benchmark run: the speed-up large, and under it the views that say why. Used by Kernels and by Runs."""

from __future__ import annotations

import streamlit as st

from backend.charts import speedup, sweep, tables, template
from backend.core.records import Record, Run
from pages._ui import jobs, runs, show, style, url, views
from pages._ui.words import run_name, status_words

_ALL = "all cases"


def draw(state: url.State, run_id: str, dimmed: str | None = None) -> None:
    """The run's answer. ``dimmed``: why it is not the answer to what is chosen now; it stays readable under that line."""
    run = runs.read(run_id)
    records = runs.records(run_id)
    heading(run)
    if dimmed:
        st.info(dimmed)
    groups = tables.cases(records)
    case = _case(state, list(groups), run)
    view = _view(state)
    if run.live:
        _live(run_id, case, view)
    else:
        with st.container(key="old_answer" if dimmed else None):
            _body(run, records, case, view)


def heading(run: Run) -> None:
    """Name, state, device and date of the run in one line, with the badge of a recorded one."""
    when = template.date(run.finished or run.started or run.created)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"**{run_name(run)}**")
        if run.recorded:
            st.badge(f"recorded on {run.device_name}", color="blue")
        if run.status != "done":
            st.badge(status_words(run.status), color={"failed": "red", "running": "green"}.get(run.status, "gray"))
        st.caption(f"{run.device_name} · {when} · [open run]({url.link('runs', run=run.id)})")
    if run.reason and run.status in ("failed", "interrupted", "cancelled"):
        st.warning(run.reason)


def _case(state: url.State, names: list[str], run: Run) -> str:
    """Which case the bars and views are of; all of them as curves where the run swept something."""
    if len(names) < 2:
        return names[0] if names else _ALL
    options = [_ALL, *names]
    key = state.seed(f"case/{run.id}", _ALL)
    wanted = state.query.get("case")
    if wanted in options and state.opened:
        st.session_state[key] = wanted
    if st.session_state[key] not in options:
        st.session_state[key] = _ALL
    chosen = st.selectbox("case", options, key=key)
    state.keep("case", chosen, _ALL)
    return chosen


def _view(state: url.State) -> str:
    key = state.seed("view", views.NAMES[0], url.one_of(views.NAMES))
    with st.container(key="views"):
        st.session_state.setdefault(key, views.NAMES[0])
    chosen = st.segmented_control("View", views.NAMES, key=key, label_visibility="collapsed", required=True)
    state.keep("view", chosen, views.NAMES[0])
    return chosen or views.NAMES[0]


@st.fragment(run_every=1.0)
def _live(run_id: str, case: str, view: str) -> None:
    """The growing answer of a running job, renewed on its own; when the job ends, the whole page is drawn once more."""
    run = runs.read(run_id)
    if not run.live:
        st.rerun(scope="app")
    p = run.progress
    if run.status == "queued":
        st.info(p.message or "Queued; it starts when the device is free.")
    else:
        st.progress(min(1.0, p.done / p.total) if p.total else 0.0, text=jobs.progress_words(p))
    records = runs.records(run_id)
    if records:
        _body(run, records, case, view)


def _body(run: Run, records: list[Record], case: str, view: str) -> None:
    if not records:
        st.caption("This run has no record." + (f" {run.reason}" if run.reason else ""))
        return
    baseline = str(run.spec.get("baseline") or records[0].impl)
    groups = tables.cases(records)
    chosen = groups.get(case) or (records if len(groups) == 1 else None)
    look = views.Look(run, records, chosen or records[-1:], baseline, template.context(run), style.theme(), chosen is not None)
    headline(look)
    views.draw(view, look)


def headline(look: views.Look) -> None:
    """Bars for one case; curves over the swept parameter for all of them."""
    key = sweep.swept_key(look.records)
    name = f"{look.run.id}-speedup"
    if look.one_case or not key:
        title = look.subtitle + (f" · {template.case_words(look.case[0])}" if look.case else "")
        show.chart(speedup.bars(look.case, look.baseline, _wrap(title), look.theme), name, tables.tidy(look.case, look.baseline))
        return
    fig = sweep.curves(look.records, key, "speed-up", look.baseline, look.subtitle, look.theme)
    show.chart(fig, name, tables.tidy(look.records, look.baseline))


def _wrap(text: str, width: int = 110) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
