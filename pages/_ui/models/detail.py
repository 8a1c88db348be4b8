"""Runs of models on the Runs page: a short result, and a link to the page that shows all of it."""

from __future__ import annotations

import streamlit as st

from fusescope.core.records import Run
from pages._ui.answer import answer, form_query
from pages._ui.app import run_data
from pages._ui.models import views

KINDS = ("model", "accuracy", "scores")


def button(run: Run) -> None:
    """Open the run on its own page."""
    page, query = _place(run)
    if st.button(f"Open in {page.capitalize()}", key="run/open"):
        st.switch_page(f"pages/{page}.py", query_params=query)


def draw(run: Run) -> None:
    """The bars of a comparison; other kinds have none."""
    records = run_data.records(run.id) if run.kind == "model" else []
    if records and not run.live:
        look = answer.look(run, records, answer.ALL)
        answer.headline(look)
        views.warnings(look)


def _place(run: Run) -> tuple[str, dict[str, str]]:
    model = str(run.spec.get("model") or str(run.spec.get("op", "")).removeprefix("model:"))
    if run.kind == "scores":
        return "masks", {"view": "Scores", "s_model": model, "s_run": run.id}
    if run.kind == "accuracy":
        return "models", {"model": model, "view": "Accuracy", "report": run.id}
    return "models", {"run": run.id} | form_query.of(run)
