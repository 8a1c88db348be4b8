"""Small sentences and units that the views of a profile share."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import streamlit as st

from fusescope.charts import numbers, template
from fusescope.jobs import submit
from pages._ui.app import callbacks
from pages._ui.profiler import data as profiler_data
from pages._ui.profiler.data import Profile
from pages._ui.widgets.text import md

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
    """Whether the run has a trace and no tables (it was collected without pyarrow); offers to make them
    then."""
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
        on_click=callbacks.careful(_import),
        args=(str(found.trace), found.run.title),
    )
    return True


def _import(file: str, title: str) -> None:
    from pages._ui.profiler import page

    page.opened(submit.submit("import", {"file": file}, title=title))


def units(data: pd.DataFrame, zero_ns: int | None = None) -> pd.DataFrame:
    """A table for the eyes: ns as µs, bytes as KiB, shares of 0 … 1 as %, starts as ms since the profile's
    first event."""
    shown = {}
    for column in data.columns:
        values, name = data[column], column.replace("_", " ")
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
        shown[name] = values
    return pd.DataFrame(shown)


_WHY = {
    "step": "launched outside the steps that the profiler marked",
    "module": "the profile names no module around it: hooks or stacks do, in a profile made here or with with_stack",
    "operator": "no operator was open on the launching thread, or a CUDA graph was replayed whose capture was not traced",
    "operator name": "no operator was open on the launching thread, or a CUDA graph was replayed whose capture was not traced",
    "operator link": "no operator was found for it",
    "launch delay": "the file holds no launch of it",
    "occupancy": "the file lacks the launch's registers, block or shared memory, or the GPU is none that it is known for",
    "grid occupancy": "the file lacks the launch's grid, registers, block or shared memory, or the GPU's number of SMs",
    "theoretical": "the file lacks the launch's registers, block or shared memory, or the GPU is none that it is known for",
    "grid-limited": "the file lacks the launch's grid, registers, block or shared memory, or the GPU's number of SMs",
    "active blocks": "the file lacks the launch's registers, block or shared memory, or the GPU is none that it is known for",
    "limiter": "the occupancy is not known",
    "measured": "only Nsight Compute measures it: no report is joined here, or no launch of it is in the report",
    "measured occupancy": "Nsight Compute was not asked for sm__warps_active",
    "ncu's theoretical": "the report lacks the section Occupancy",
    "reported occupancy": "the profiler wrote no estimate of its own",
    "trace time": "no launch of the trace has this name, grid and block at this place in the order",
    "graph": "not launched by a CUDA graph, or the profiler does not number graphs",
    "graph node": "not launched by a CUDA graph, or the profiler does not number its nodes",
    "shapes": "shapes were not recorded (record_shapes), or it has no tensors",
    "types": "shapes were not recorded (record_shapes), or it has no tensors",
    "gbps": "the file does not say how many bytes, or the copy took no time",
    "b / a": "one of the two has none of it, so there is nothing to divide",
    "throttled": "the device ran as fast as its settings allow, or NVML did not say",
    "where": "the snapshot holds no Python frame of it",
    "unit": "a plain number",
}
"""Column, without its unit, → why a value is not there."""
_OF_TABLE = {
    "telemetry": "the device does not have this reading, or it failed",
    "ncu_kernels": "Nsight Compute was not asked for it: another set of metrics has it",
    "ncu_stalls": "Nsight Compute was not asked for it: another set of metrics has it",
    "gaps": "the file does not name what ran there",
}


def why(table: str = "") -> Callable[[int, str], str]:
    """Why a cell of a table of that name is empty, for ``show.table``."""
    return lambda row, column: _WHY.get(
        column.partition(" (")[0], _OF_TABLE.get(table, "the file does not say")
    )


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
