"""The answer of a benchmark run: the speed-up large, and under it the views that say why. Used by Kernels and
by Runs."""

from __future__ import annotations

import plotly.graph_objects as go
import streamlit as st

from fusescope.charts import tables, template
from fusescope.charts.bench import overview, speedup, sweep
from fusescope.core.records import Record, Run
from pages._ui.answer import runs, views
from pages._ui.app import cached_chart, jobs, redraw, style, url
from pages._ui.widgets import elements
from pages._ui.widgets.text import md, run_name, status_words

_ALL = "all cases"


def draw(
    state: url.State, run_id: str, dimmed: str | None = None, link: bool = True, first: str = _ALL
) -> None:
    """The run's answer. ``dimmed``: why it is not the answer to what is chosen now; it stays readable under
    that line. ``first``: the case to open it with, as ``tables.cases`` names it."""
    run = runs.read(run_id)
    records = runs.records(run_id)
    if not run.live:
        heading(run, link=link)
    if dimmed:
        st.info(dimmed)
    case = _case(state, list(tables.cases(records)), run, first)
    if run.live:
        _live_headline(run_id, case)
        _live_view(run_id, case, _view(state))
    elif not records:
        st.caption("This run has no record.")
    else:
        with st.container(key="old_answer" if dimmed else None):
            look = _look(run, records, case)
            headline(look)
            views.draw(_view(state), look)


def heading(run: Run, before: str = "", link: bool = True, why: bool = True) -> None:
    """Name, state, device and date of the run in one line, with the badge of a recorded one; ``why``: and why
    it did not end."""
    when = template.date(run.finished or run.started or run.created)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"**{before}{md(run_name(run))}**")
        if run.recorded:
            st.badge(f"recorded on {md(run.device_name)}", color="blue")
        if run.status != "done":
            st.badge(
                status_words(run.status), color={"failed": "red", "running": "green"}.get(run.status, "gray")
            )
        opened = f" · [open run]({url.link('runs', run=run.id)})" if link else ""
        st.caption(f"{md(run.device_name)} · {when}{opened}")
    if why and run.reason and run.status in ("failed", "interrupted", "cancelled"):
        st.warning(md(run.reason))


def _case(state: url.State, names: list[str], run: Run, first: str) -> str:
    """Which case the bars and views are of, or all of them: as curves where the run swept something, else as
    a table of colours."""
    if len(names) < 2:
        return names[0] if names else _ALL
    options = [_ALL, *names]
    default = first if first in options else _ALL
    key = state.seed(f"case/{run.id}/{default}", default)
    wanted = state.query.get("case")
    if wanted in options and state.opened:
        st.session_state[key] = wanted
    if st.session_state[key] not in options:
        st.session_state[key] = default
    chosen = st.columns([2, 3])[0].selectbox("case", options, key=key)
    state.keep("case", chosen, default)
    return chosen


def _view(state: url.State) -> str:
    key = state.seed("view", views.NAMES[0], url.one_of(views.NAMES))
    chosen = st.segmented_control("View", views.NAMES, key=key, label_visibility="collapsed", required=True)
    state.keep("view", chosen, views.NAMES[0])
    return chosen or views.NAMES[0]


@st.fragment(run_every=1.0)
def _live_headline(run_id: str, case: str) -> None:
    """The growing answer of a running job, renewed on its own; when the job ends, the whole page is drawn
    once more."""
    run = runs.read(run_id)
    if not run.live:
        redraw.whole_page()
    heading(run)
    p = run.progress
    if run.status == "queued":
        st.info(md(p.message) or "Queued; it starts when the device is free.")
    else:
        jobs.bar(p)
    records = runs.records(run_id)
    if records:
        headline(_look(run, records, case))
    else:
        st.caption(
            "Records appear here case by case, when all implementations of a case are checked and timed."
        )


def previous(run_id: str) -> None:
    """An earlier run's headline, dimmed, for the time until a new one has something to show."""
    if runs.records(run_id):
        with st.container(key="previous_answer"):
            st.caption("The answer before:")
            brief(run_id)


def brief(run_id: str, case: str = _ALL) -> None:
    """A run's name and its chart alone; a run without a record has none."""
    run, records = runs.read(run_id), runs.records(run_id)
    heading(run, why=False)
    if records:
        headline(_look(run, records, case))


@st.fragment(run_every=2.0)
def _live_view(run_id: str, case: str, view: str) -> None:
    """The view under a running job's chart, with the records so far."""
    run, records = runs.read(run_id), runs.records(run_id)
    if records:
        views.draw(view, _look(run, records, case))


def _look(run: Run, records: list[Record], case: str) -> views.Look:
    baseline = str(run.spec.get("baseline") or records[0].impl)
    groups = tables.cases(records)
    rows = groups.get(case) or list(groups.values())[-1]
    return views.Look(
        run, records, rows, baseline, template.context(run), style.theme(), case in groups or len(groups) == 1
    )


def headline(look: views.Look) -> None:
    """Bars for one case; for all of them curves over the swept parameter, or the overview where no one number
    was swept."""
    elements.chart(
        cached_chart.once(("headline", *look.key), lambda: _headline(look)),
        f"{look.run.id}-speedup",
        look.tidy,
    )


def _headline(look: views.Look) -> go.Figure:
    if look.one_case:
        return speedup.bars(look.case, look.baseline, look.subtitle, look.theme)
    key = sweep.swept_key(look.records)
    if key:
        return sweep.curves(look.records, key, "speed-up", look.baseline, look.subtitle, look.theme)
    return overview.cells(look.records, look.baseline, look.subtitle, look.theme)
