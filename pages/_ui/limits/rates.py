"""The rates of a device: as the newest comparison on it measured them, else those of its data sheet."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from fusescope.analysis import hardware
from fusescope.analysis.roofline import Ceiling
from fusescope.store import library
from pages._ui.app import run_data

_MOST = 200  # newest runs of a kind that are read
_MEASURED, _SHEET = "measured", "data sheet"


@dataclass(frozen=True)
class Rates:
    """The lines of a device and dtype, and where each comes from: "measured" or "data sheet"."""

    ceiling: Ceiling
    memory_from: str
    matrix_from: str


def of(name: str | None, dtype: str | None) -> Rates | None:
    """Those of a device in a dtype. The bandwidth is that of any dtype: it depends on none. None where either
    is unknown."""
    return _of(name, str(dtype), run_data.state())


def bandwidth(name: str | None) -> float | None:
    """GB/s of the device's memory; None where it is unknown."""
    found = _bandwidth(name, run_data.state())
    return found and found[0]


@st.cache_data(max_entries=64, show_spinner=False)
def _of(name: str | None, dtype: str, state: int) -> Rates | None:
    memory = _bandwidth(name, state)
    if memory is None:
        return None
    measured = (c.get("matrix_tflops") or {} for c in _ceilings(name, state))
    if rate := next((rates[dtype] for rates in measured if rates.get(dtype)), None):
        return Rates(Ceiling(memory[0], rate), memory[1], _MEASURED)
    peaks = hardware.peaks(name or "")
    rate = peaks and (peaks.tflops(dtype) or peaks.tflops(dtype, "vector"))
    return Rates(Ceiling(memory[0], rate), memory[1], _SHEET) if rate else None


def _bandwidth(name: str | None, state: int) -> tuple[float, str] | None:
    copies = (c["copy_gbps"] for c in _ceilings(name, state) if c.get("copy_gbps"))
    if measured := next(copies, None):
        return measured, _MEASURED
    peaks = hardware.peaks(name or "")
    return (peaks.bandwidth_gbps, _SHEET) if peaks else None


@st.cache_data(max_entries=16, show_spinner=False)
def _ceilings(name: str | None, state: int) -> list[dict]:
    """What the comparisons on a device measured of it, of operators before those of models, newest first."""
    runs = (run for kind in ("bench", "model") for run in library.runs(kind=kind, limit=_MOST)[0])
    return [dict(run.environment.get("ceilings") or {}) for run in runs if run.device_name == name]
