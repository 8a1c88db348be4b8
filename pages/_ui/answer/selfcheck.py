"""The report of a self-check: every row with its figure, those that did not pass first."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from fusescope.charts import captions
from fusescope.core.errors import RunError
from fusescope.core.records import Run
from fusescope.store import library, tables
from pages._ui.widgets import elements
from pages._ui.widgets.text import md, sentence

KIND = "selfcheck"
_PARTS = {
    "A/A": "one kernel as two implementations; a difference that is found is a false one",
    "planted": "a slow-down of known size, to be found",
    "wrong kernels": "kernels with a fault each, to be caught by the check",
    "agreement": "our time over that of another timer on the same call; in brackets ours, then the other's",
}
_WORDS = {True: "passed", False: "failed", None: "open"}


def draw(run: Run) -> None:
    """The table of one run."""
    if run.live:
        return
    try:
        report = tables.read(library.find(run.id), KIND)
    except RunError as error:
        st.caption(md(sentence(error)))
        return
    st.markdown(counted(report))
    order = {False: 0, None: 1, True: 2}
    rows = sorted(report["rows"], key=lambda r: order[r["passed"]])
    columns = {"part": "part", "check": "check", "figure": "found", "limit": "wanted", "note": "note"}
    data = pd.DataFrame([{"result": _WORDS[r["passed"]]} | {columns[k]: r[k] for k in columns} for r in rows])
    elements.table(data, f"{run.id}-selfcheck")
    there = dict.fromkeys(r["part"] for r in rows)
    elements.note(". ".join(f"{md(part)}: {_PARTS[part]}" for part in there if part in _PARTS) + ".")


def counted(report: dict) -> str:
    """ "126 passed, 0 failed, 4 open"."""
    return ", ".join(f"{report[k]} {k}" for k in ("passed", "failed", "open"))


def last() -> None:
    """Home's one line: the last self-check on this machine, with its date and a link; nothing before the
    first."""
    found, _ = library.runs(kind=KIND, recorded=False, status="done", limit=1)
    if not found:
        return
    try:
        report = tables.read(library.find(found[0].id), KIND)
    except RunError:
        return
    st.page_link(
        "pages/runs.py",
        label=f"Self-check of {captions.when(found[0])}: {counted(report)}",
        query_params={"run": found[0].id},
    )
