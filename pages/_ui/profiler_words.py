"""Small sentences and units that the views of a profile share."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from backend.charts import numbers, template
from backend.jobs import submit
from pages._ui import act, profiler_data
from pages._ui.profiler_data import Profile
from pages._ui.words import md

UNIT_OF = {"_ns": ("µs", 1e-3), "_bytes": ("KiB", 1 / 1024)}
"""Ending of a column → the unit that it is shown in, and the factor."""


def subtitle(found: Profile) -> str:
    """Device, date and file under the title of every chart."""
    summary = found.summary or {}
    gpu = next((g["name"] for g in summary.get("gpus", ()) if g.get("name")), None)
    words = [
        gpu or found.run.device_name,
        str(found.run.spec.get("dtype") or ""),
        template.date(found.run.finished or found.run.created),
    ]
    return " · ".join(w for w in words if w)


def lacks(what: str, how: str) -> None:
    """One sentence on what this profile does not hold, and how to get it."""
    st.info(f"This profile holds no {what}. {how}")


def tables_missing(found: Profile) -> bool:
    """Whether the run has a trace and no tables (it was collected without pyarrow); offers to make them then."""
    if found.summary is not None:
        return False
    if found.trace is None:
        lacks("trace", "Choose another one, or profile something now.")
        return True
    st.info("This run holds a trace, but not its tables: pyarrow was not installed where it was collected.")
    st.button(
        "Import the trace",
        type="primary",
        key="profiler/tables",
        on_click=act.careful(_import),
        args=(str(found.trace), found.run.title),
    )
    return True


def _import(file: str, title: str) -> None:
    from pages._ui import profiler

    profiler.opened(submit.submit("import", {"file": file}, title=title))


def units(data: pd.DataFrame, zero_ns: int | None = None) -> pd.DataFrame:
    """A table for the eyes: ns as µs, bytes as KiB, shares of 0 … 1 as %, starts as ms since the profile's first event."""
    shown = {}
    for column in data.columns:
        values, name = data[column], column.replace("_", " ")
        if column == "ts_ns":
            values, name = (values - (zero_ns or 0)) / 1e6, "start (ms)"
        elif column.endswith("_ns"):
            values, name = values.astype(float) / 1e3, f"{column[:-3].replace('_', ' ')} (µs)".replace("dur (", "time (")
        elif column.endswith("_bytes") or column in ("bytes", "allocated", "reserved"):
            values, name = values.astype(float) / 1024, f"{column.removesuffix('_bytes').replace('_', ' ')} (KiB)"
        elif column == "share" or column.endswith("occupancy"):
            values, name = values.astype(float) * 100, f"{name} (%)"
        shown[name] = values
    return pd.DataFrame(shown)


def share(value: float | None) -> str:
    return numbers.NA if value is None or value != value else numbers.percent(value)


def notes(found: Profile) -> None:
    """What the importer says of the file."""
    for note in (found.summary or {}).get("notes", ()):
        st.caption(f"! {md(str(note))}")


def frame(found: Profile, table: str) -> pd.DataFrame:
    return profiler_data.small(str(found.path), table, found.stamp)


def rows(found: Profile, table: str) -> list[dict]:
    return profiler_data.rows(str(found.path), table, found.stamp)
