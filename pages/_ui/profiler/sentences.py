"""Subtitles, units and reasons for missing values that the views of a profile share."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import streamlit as st

from fusescope.charts import captions, numbers
from fusescope.core.machine.conditions import NO_DEVICE, UNNAMED_DEVICE
from fusescope.jobs import submit
from pages._ui.app import callbacks
from pages._ui.profiler import data
from pages._ui.profiler.data import Profile
from pages._ui.widgets.text import md, sentence


def subtitle(found: Profile) -> str:
    """Device, date and file under the title of every chart."""
    summary = found.summary or {}
    gpu = next((g["name"] for g in summary.get("gpus", ()) if g.get("name")), None)
    words = [
        gpu or known_device(found.run.device_name),
        str(found.run.spec.get("dtype") or ""),
        captions.date(found.run.finished or found.run.created),
    ]
    return " · ".join(w for w in words if w)


def known_device(name: str) -> str:
    """The device's name, "" where none is known: the picker and the heading above say so."""
    return "" if name in (NO_DEVICE, UNNAMED_DEVICE) else name


def lacks(what: str, how: str) -> None:
    """One sentence on what this profile lacks, and how to get it."""
    st.info(f"This profile has no {what}. {how}")


def tables_missing(found: Profile) -> bool:
    """Whether the run has a trace and no tables (it was collected without pyarrow); offers to make them
    then."""
    if found.summary is not None:
        return False
    if found.trace is None:
        lacks("trace", "Choose another one, or profile something now.")
        return True
    st.info("This run has a trace but no tables: pyarrow was not installed where it was collected.")
    st.button(
        "Import the trace",
        type="primary",
        key="profiler/tables",
        on_click=callbacks.careful(_import),
        args=(str(found.trace), found.run.title),
    )
    return True


def _import(file: str, title: str) -> None:
    data.opened(submit.submit("import", {"file": file}, title=title))


NAMED = {"launches": "launch configurations"}
"""Headings that say more than the column's name: distinct launches of a kernel, not their number."""


def units(table: pd.DataFrame, zero_ns: int | None = None) -> pd.DataFrame:
    """A readable table: ns as µs, bytes as KiB, shares of 0 … 1 as %, starts as ms since the profile's
    first event."""
    shown = {}
    for column in table.columns:
        values, name = table[column], column.replace("_", " ")
        if column == "ts_ns":
            values, name = (values - (zero_ns or 0)) / 1e6, "start (ms)"
        elif column.endswith("_ns"):
            values, name = (
                values.astype(float) / 1e3,
                f"{column[:-3].replace('_', ' ')} (µs)".replace("dur (", "time ("),
            )
        elif column.endswith("_bytes") or column in ("bytes", "allocated", "reserved"):
            values, name = (
                values.astype(float) / 1024,
                f"{column.removesuffix('_bytes').replace('_', ' ')} (KiB)",
            )
        elif column == "share" or column.endswith("occupancy"):
            values, name = values.astype(float) * 100, f"{name} (%)"
        else:
            name = NAMED.get(column, name)
        shown[name] = values
    return pd.DataFrame(shown)


_OPERATOR = (
    "no operator was open on the launching thread, or a CUDA graph was replayed whose capture was not traced"
)
_SM = "the file lacks registers, block or shared memory, or the GPU is unknown"
_GRID = "the file lacks grid, registers, block or shared memory, or the number of SMs"
_WHY = {
    "step": "launched outside the profiler's steps",
    "module": "no module recorded around it; profiles made here, or with with_stack, record them",
    "operator": _OPERATOR,
    "operator name": _OPERATOR,
    "operator link": "no operator found for it",
    "launch delay": "the file has no launch of it",
    "occupancy": _SM,
    "grid occupancy": _GRID,
    "theoretical": _SM,
    "grid-limited": _GRID,
    "active blocks": _SM,
    "launch configurations": "the file has no grid, block, registers or shared memory of it",
    "limiter": "the occupancy is unknown",
    "measured": "only Nsight Compute measures it: no report is joined, or it lacks this kernel",
    "measured occupancy": "sm__warps_active was not collected",
    "ncu's theoretical": "the report lacks the section Occupancy",
    "reported occupancy": "the profiler wrote no estimate",
    "trace time": "no launch of the trace matches by name, grid, block and order",
    "graph": "not launched by a CUDA graph, or the profiler does not number graphs",
    "graph node": "not launched by a CUDA graph, or the profiler does not number its nodes",
    "shapes": "shapes were not recorded (record_shapes), or it has no tensors",
    "types": "shapes were not recorded (record_shapes), or it has no tensors",
    "gbps": "the file has no byte count, or the copy took no time",
    "speed-up of b": "only one of the two profiles has it",
    "throttled": "not throttled, or NVML did not report it",
    "where": "the snapshot has no Python frame of it",
    "unit": "a plain number",
}
"""Column, without its unit, → why a value is not there."""
_OF_TABLE = {
    "telemetry": "the device lacks this reading, or it failed",
    "ncu_kernels": "not collected; choose another set of metrics",
    "ncu_stalls": "not collected; choose another set of metrics",
    "gaps": "the file does not name it",
}


def why(table: str = "") -> Callable[[int, str], str]:
    """Why a cell of a table of that name is empty, for ``elements.table``."""
    return lambda row, column: _WHY.get(column.partition(" (")[0], _OF_TABLE.get(table, "not in the file"))


def without_empty(table: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The readable table without columns that have no value in any row, and a sentence on which those are and
    why; "" where there are none."""
    empty = [c for c in table.columns if table[c].isna().all()]
    if not empty or not len(table):
        return table, ""
    names: dict[str, list[str]] = {}
    for column in empty:
        name = column.partition(" (")[0]
        names.setdefault(_WHY.get(name, "not in the file"), []).append(name)
    parts = [f"{', '.join(n)} ({why})" for why, n in names.items()]
    return table.drop(columns=empty), f"Not shown, since no row has a value: {'; '.join(parts)}."


_CUT = 3  # names of one length, all unbalanced or not ended: a profiler cut them


def cut_names(table: pd.DataFrame) -> str:
    """A sentence where kernel names were cut before they came here; "" where none were.

    The longest length is a limit where at least _CUT names have it and none is longer, and some of these end
    inside brackets; one that ends in "..." was cut by whoever wrote the file.
    """
    names = [str(n) for n in table["name"].dropna()]
    most = max(map(len, names), default=0)
    at_limit = [n for n in names if len(n) == most]
    inside = sum(any(n.count(a) > n.count(b) for a, b in ("<>", "()")) for n in at_limit)
    dots = sum(n.endswith(("...", "…")) for n in names)
    if dots or (len(at_limit) >= _CUT and inside):
        where = 'where it ends in "..."' if dots else f"after {most} characters"
        return f"The file itself has names cut {where}; kernels that differ only beyond count as one here."
    return ""


def share(value: float | None) -> str:
    return numbers.NA if value is None or value != value else numbers.percent(value)


def notes(found: Profile) -> None:
    """The importer's notes on the file."""
    for note in (found.summary or {}).get("notes", ()):
        st.caption(md(sentence(str(note))))


def frame(found: Profile, table: str) -> pd.DataFrame:
    return data.small(str(found.path), table, found.stamp)


def rows(found: Profile, table: str) -> list[dict]:
    return data.rows(str(found.path), table, found.stamp)
