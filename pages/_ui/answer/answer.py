"""The result of a benchmark run: the speed-up as a large chart, and under it the views that explain it."""

from __future__ import annotations

import plotly.graph_objects as go
import streamlit as st

from fusescope.charts import captions, tables
from fusescope.charts.bench import overview, speedup, sweep
from fusescope.core.records import Record, Run
from pages._ui.answer import views
from pages._ui.app import cached_chart, jobs, run_data, url
from pages._ui.forms import fields
from pages._ui.widgets import elements, style
from pages._ui.widgets.text import md, reason_text, run_name, status_text

ALL = "all cases"


def draw(
    state: url.State, run_id: str, dimmed: str | None = None, link: bool = True, first: str = ALL
) -> None:
    """The run's result. ``dimmed``: why it does not belong to the current settings; it stays readable under
    that line. ``first``: the case to open it with, as ``tables.cases`` names it."""
    run, records = run_data.read(run_id), run_data.records(run_id)
    if not run.live:
        heading(run, link=link)
    if dimmed:
        st.info(dimmed)
    case = case_picker(state, list(tables.cases(records)), run, first)
    if run.live:
        follow(run_id, case, "implementations")
        _live_view(run_id, case, fields.view(state, "view", views.NAMES))
    elif not records:
        st.caption("This run was cancelled before any result.")
    else:
        with st.container(key="old_answer" if dimmed else None):
            shown = look(run, records, case)
            headline(shown)
            views.draw(fields.view(state, "view", views.NAMES), shown)


def heading(run: Run, before: str = "", link: bool = True, why: bool = True) -> None:
    """Name, state, device and date of the run in one line, with the badge of a recorded one; ``why``: and why
    it did not finish."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"**{before}{md(run_name(run))}**")
        if run.recorded:
            st.badge(f"recorded on {md(run.device_name)}", color="blue")
        if run.status != "done":
            colour = {"failed": "red", "running": "green"}.get(run.status, "gray")
            st.badge(status_text(run.status), color=colour)
        opened = f" · [open run]({url.link('runs', run=run.id)})" if link else ""
        st.caption(f"{md(run.device_name)} · {captions.when(run)}{opened}")
    if why and run.reason and run.status in ("failed", "interrupted", "cancelled"):
        st.warning(md(reason_text(run)))


def case_picker(state: url.State, names: list[str], run: Run, first: str = ALL) -> str:
    """Which case the bars and views show, or all of them: as curves where the run swept a parameter, else as
    a table of colours."""
    if len(names) < 2:
        return names[0] if names else ALL
    options = [ALL, *names]
    default = first if first in options else ALL
    key = state.seed(f"case/{run.id}/{default}", default)
    if state.opened and state.query.get("case") in options:
        st.session_state[key] = state.query["case"]
    if st.session_state[key] not in options:
        st.session_state[key] = default
    chosen = st.selectbox("case", options, key=key)
    state.keep("case", chosen, default)
    return chosen


def follow(run_id: str, case: str, compared: str) -> None:
    """The growing result of a running job, updated on its own."""

    def body(run: Run) -> None:
        records = run_data.records(run.id)
        if records:
            headline(look(run, records, case))
        else:
            st.caption(f"Results appear case by case, once all {compared} of a case are checked and timed.")

    jobs.follow(run_id, heading, body)


def previous(run_id: str) -> None:
    """An earlier run's headline, dimmed, until a new one has something to show."""
    if run_data.records(run_id):
        with st.container(key="previous_answer"):
            st.caption("Previous result:")
            brief(run_id)


def brief(run_id: str, case: str = ALL) -> None:
    """A run's name and its chart alone; a run without a record has none."""
    run, records = run_data.read(run_id), run_data.records(run_id)
    heading(run, why=False)
    if records:
        headline(look(run, records, case))


@st.fragment(run_every=2.0)
def _live_view(run_id: str, case: str, view: str) -> None:
    """The view under a running job's chart, with the records so far."""
    run, records = run_data.read(run_id), run_data.records(run_id)
    if records:
        views.draw(view, look(run, records, case))


def look(run: Run, records: list[Record], case: str) -> views.Look:
    """What charts and views draw from: the case so named, else all."""
    baseline = str(run.spec.get("baseline") or records[0].impl)
    groups = tables.cases(records)
    rows = groups.get(case) or list(groups.values())[-1]
    one = case in groups or len(groups) == 1
    return views.Look(run, records, rows, baseline, captions.context(run), style.theme(), one)


def headline(look: views.Look) -> None:
    """Bars for one case; for all of them curves over the swept parameter, or the overview where no single
    parameter was swept."""
    fig = cached_chart.once(("headline", *look.key), lambda: _headline(look))
    elements.chart(fig, f"{look.run.id}-speedup", look.tidy)


def _headline(look: views.Look) -> go.Figure:
    if look.one_case:
        return speedup.bars(look.case, look.baseline, look.subtitle, look.theme)
    key = sweep.swept_key(look.records)
    if key:
        return sweep.curves(look.records, key, "speed-up", look.baseline, look.subtitle, look.theme)
    return overview.cells(look.records, look.baseline, look.subtitle, look.theme)
