"""A list of runs as a table whose lines open a run."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import streamlit as st

from fusescope.analysis.verdict import in_short, verdict
from fusescope.charts import captions, tables
from fusescope.core.errors import RunError
from fusescope.core.records import Run
from fusescope.store import library, profile
from pages._ui.app import run_data, url
from pages._ui.widgets.text import device_text, run_name, status_text


def frame(found: list[Run]) -> pd.DataFrame:
    """One line per run; the first column is a link to it."""
    return pd.DataFrame(
        [
            {
                "open": url.link("runs", run=r.id),
                "status": status_text(r.status),
                "what": run_name(r),
                "answer": _result(r),
                "when": captions.when(r),
                "device": device_text(r.device_name),
                "kind": r.kind,
                "tags": ", ".join(r.tags),
            }
            for r in found
        ]
    )


def _result(run: Run) -> str:
    """What a comparison found, or what limits a profiled program; "" for other kinds."""
    try:
        path = library.find(run.id)
    except RunError:
        return ""  # it was deleted between listing and drawing
    if run.kind in ("bench", "model"):
        return _comparison(run.id, str(run.spec.get("baseline") or ""), run_data.stamp(path, "results.jsonl"))
    return _limit(str(path), run_data.stamp(path, "artifacts/summary.json"))


@st.cache_data(max_entries=2000, show_spinner=False)
def _comparison(run_id: str, baseline: str, stamp: tuple[int, int]) -> str:
    records = run_data.records(run_id)
    return tables.answer(records, baseline or records[0].impl) if records else ""


@st.cache_data(max_entries=2000, show_spinner=False)
def _limit(path: str, stamp: tuple[int, int]) -> str:
    folder = Path(path)
    summary = profile.summary(folder)
    if not summary or summary.get("source") == "snapshot":  # no profile, or one of memory alone
        return ""
    ncu = profile.rows(folder, "ncu_kernels") if "ncu_kernels" in profile.names(folder) else []
    return in_short(verdict(summary, ncu))


def draw(found: list[Run], key: str) -> None:
    """The table without a selection."""
    data = frame(found).drop(columns=["tags", "kind"])
    st.dataframe(
        data,
        hide_index=True,
        width="stretch",
        height="content",
        key=key,
        column_config=columns(),
        row_height=32,
    )


def select(found: list[Run], key: str) -> list[Run]:
    """The table with lines to select; the selected runs."""
    event = st.dataframe(
        frame(found),
        hide_index=True,
        width="stretch",
        key=key,
        column_config=columns(),
        on_select="rerun",
        selection_mode="multi-row",
        row_height=32,
        height="content",
    )
    return [found[i] for i in event.selection.rows if i < len(found)]


def columns() -> dict:
    return {
        "open": st.column_config.LinkColumn("", display_text="open", width=56),
        "what": st.column_config.TextColumn("run", width=412),
        "answer": st.column_config.TextColumn("result", width=245),
        "device": st.column_config.TextColumn("device", width=110),
        "status": st.column_config.TextColumn("status", width=90),
        "when": st.column_config.TextColumn("when", width=130),
        "kind": st.column_config.TextColumn("kind", width=60),
    }
