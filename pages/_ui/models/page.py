"""The Models page put together: the form, the run it started, the last answer, and what can be said of a
model without a run."""

from __future__ import annotations

import streamlit as st

from fusescope import models
from fusescope.charts import tables, template
from fusescope.core.records import Record, Run
from fusescope.jobs import submit
from pages._ui.answer import answer, matching, runs, views
from pages._ui.app import callbacks, jobs, redraw, style, url
from pages._ui.models import form as models_form
from pages._ui.models import views as models_views
from pages._ui.models.form import Choice
from pages._ui.widgets.text import md

_COMPARED = {
    "op": "model",
    "impls": "ways",
    "cases": "sizes",
    "baseline": "baseline",
    "dtype": "dtype",
    "device": "device",
    "cache": "cache",
    "checkpoint": "checkpoint",
}


def form(state: url.State) -> Choice:
    """The controls in their column."""
    return models_form.draw(state)


def result(state: url.State, choice: Choice) -> None:
    """The answer to what was run, live while it runs, dimmed and dated once other settings are chosen; the
    views under it."""
    key = state.seed("run_id", state.query.get("run"))
    if choice.pressed and choice.spec and not matching.running(st.session_state[key], choice.spec, _COMPARED):
        st.session_state[key] = submit.submit("model", choice.spec)
    if st.session_state[key] and not matching.of_kind(
        state, st.session_state[key], "model", "a comparison of a model"
    ):
        st.session_state[key] = None
    run_id = st.session_state[key]
    state.keep("run", run_id)
    if run_id is None:
        latest = runs.newest("model", choice.op, recorded=False)
        run_id = latest.id if latest else None
    if run_id is None:
        run_id = _empty(choice)
    shown = None
    if run_id:
        run, records = runs.read(run_id), runs.records(run_id)
        dimmed = matching.differs(run, choice.spec, _COMPARED)
        if run.live:
            _live(run_id)
        else:
            answer.heading(run)
        if dimmed:
            st.info(dimmed)
        if records:
            shown = _look(state, run, records)
            with st.container(key="old_answer" if dimmed else None):
                if not run.live:
                    answer.headline(shown)
                    models_views.remarks(shown)
        elif not run.live:
            st.caption("This run has no record.")
    models_views.draw(state, choice, shown)


@st.fragment(run_every=1.0)
def _live(run_id: str) -> None:
    """The growing answer of a running job, renewed on its own; when the job ends, the whole page is drawn
    once more."""
    run = runs.read(run_id)
    if not run.live:
        redraw.whole_page()
    answer.heading(run)
    p = run.progress
    if run.status == "queued":
        st.info(md(p.message) or "Queued; it starts when the device is free.")
    else:
        jobs.bar(p)
    records = runs.records(run_id)
    if records:
        answer.headline(look(run, records, None))
    else:
        st.caption("Records appear here case by case, when every way of a case is checked and timed.")


def _look(state: url.State, run: Run, records: list[Record]) -> views.Look:
    """What the views draw from; with several cases one of them can be chosen."""
    names = list(tables.cases(records))
    if len(names) < 2:
        return look(run, records, names[0])
    options = ["all cases", *names]
    key = state.seed(f"case/{run.id}", options[0])
    if state.opened and state.query.get("case") in options:
        st.session_state[key] = state.query["case"]
    if st.session_state[key] not in options:
        st.session_state[key] = options[0]
    chosen = st.columns([2, 3])[0].selectbox("case", options, key=key)
    state.keep("case", chosen, options[0])
    return look(run, records, chosen)


def look(run: Run, records: list[Record], case: str | None) -> views.Look:
    """What is drawn of a run: of the case so named, else of all."""
    groups = tables.cases(records)
    baseline = str(run.spec.get("baseline") or records[0].impl)
    rows = groups.get(case or "") or list(groups.values())[-1]
    one = len(groups) == 1 or case in groups
    return views.Look(run, records, rows, baseline, template.context(run), style.theme(), one)


def _empty(choice: Choice) -> str | None:
    """Nothing was measured here yet: one sentence, one button, and a recording where there is one."""
    st.markdown(
        f"**{models.title(choice.model)}** was not measured here yet. Press Run, and the answer stands here in a moment."
    )
    st.button(
        "Run a first comparison",
        type="primary",
        disabled=choice.spec is None,
        key="empty/run",
        on_click=callbacks.careful(_first),
        args=(choice.spec,),
    )
    shown = runs.newest("model", choice.op, recorded=True) or runs.newest("model", recorded=True)
    if shown is None:
        st.caption(
            "No run of a model was recorded on other hardware yet. Parameters and accuracy below need no measurement."
        )
        return None
    st.caption("Meanwhile, one that was recorded on other hardware:")
    return shown.id


def _first(spec: dict) -> None:
    st.session_state["models/run_id"] = submit.submit("model", spec)
