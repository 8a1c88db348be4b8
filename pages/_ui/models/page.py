"""The Models page: the form, the run it started, its result, and what is known of a model without a run."""

from __future__ import annotations

import streamlit as st

from fusescope import models
from fusescope.charts import tables
from pages._ui.answer import answer, matching
from pages._ui.app import run_data, url
from pages._ui.models import views
from pages._ui.models.form import Choice

_COMPARED = {
    "op": "model",
    "impls": "execution modes",
    "cases": "sizes",
    "baseline": "baseline",
    "dtype": "dtype",
    "device": "device",
    "cache": "cache",
    "checkpoint": "checkpoint",
}


def result(state: url.State, choice: Choice) -> None:
    """The result of what was run, live while it runs, dimmed and dated once other settings are chosen; the
    views under it."""
    run_id = matching.shown(
        state, "model", choice.op, choice.spec, choice.pressed, _COMPARED, "a comparison of a model"
    )
    if run_id is None:
        run_id = _empty(choice)
    look = None
    if run_id:
        run, records = run_data.read(run_id), run_data.records(run_id)
        dimmed = matching.differs(run, choice.spec, _COMPARED)
        if run.live:
            answer.follow(run_id, answer.ALL, "execution modes")
        else:
            answer.heading(run)
        if dimmed:
            st.info(dimmed)
        if records:
            look = answer.look(run, records, answer.case_picker(state, list(tables.cases(records)), run))
            with st.container(key="old_answer" if dimmed else None):
                if not run.live:
                    answer.headline(look)
                    views.warnings(look)
        elif not run.live:
            st.caption("This run was cancelled before any result.")
    views.draw(state, choice, look)


def _empty(choice: Choice) -> str | None:
    """Nothing has been measured here yet: one sentence, one button, and a recording where there is one."""
    matching.first(models.title(choice.model), "models", "model", choice.spec)
    recorded = run_data.newest("model", choice.op, recorded=True) or run_data.newest("model", recorded=True)
    if recorded is None:
        st.caption(
            "No recorded run of a model ships with this checkout. Parameters and accuracy need no run."
        )
        return None
    st.caption("A recorded run:")
    return recorded.id
