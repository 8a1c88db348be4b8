"""A sweep or a search on the Runs page: its schemes, and a link to the page that shows all of it."""

from __future__ import annotations

import streamlit as st

from fusescope.core.records import Record, Run
from fusescope.search import sessions
from pages._ui.fusion import place, runs, search, sweep

KINDS = runs.KINDS
_PARTS = {"traverse": "Sweep", "search": "Search"}


def button(run: Run) -> None:
    """Open the run on the Fusion page, with its layer in the form."""
    if st.button("Open in Fusion", key="run/open"):
        st.switch_page(
            "pages/fusion.py", query_params=place.query_of(run) | {"part": _PARTS[run.kind], run.kind: run.id}
        )


def draw(run: Run) -> None:
    """The charts of the Fusion page, once the run has ended."""
    if not run.live:
        (sweep.schemes if run.kind == "traverse" else search.found)(run, here=False)


def records(run: Run) -> list[Record]:
    """Of the run and the sessions before it."""
    return sessions.records(run.id)
