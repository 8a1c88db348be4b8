"""Where records stand under the roofline of their run's device, and how that device's measured ceilings
compare to its data sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusescope import ops
from fusescope.analysis import hardware, roofline
from fusescope.charts.numbers import percent, three
from fusescope.core.records import Record


def unit(record: Record) -> str:
    """The arithmetic peak that applies to the record's operator; "vector" for an operator that this version
    does not know."""
    try:
        return ops.load(record.op).cost(record.case, record.dtype).unit
    except (ValueError, KeyError):
        return "matrix" if record.op.startswith("model:") else "vector"


def shares(records: Sequence[Record], environment: Mapping[str, Any]) -> dict[int, float]:
    """By id() of the record: the share of the rate that the measured ceilings allow at its intensity. None
    measured: empty."""
    if not records:
        return {}
    try:
        line = roofline.ceiling(environment.get("ceilings") or {}, records[0].dtype, unit(records[0]))
    except ValueError:
        return {}
    placed = {id(r): roofline.place(r, line) for r in records}
    return {key: p.share for key, p in placed.items() if p}


def words(records: Sequence[Record], environment: Mapping[str, Any]) -> str:
    """The measured ceilings in one line, next to the data sheet's where the device is known; empty where none
    was measured."""
    measured = environment.get("ceilings") or {}
    if not records or not measured.get("copy_gbps"):
        return ""
    dtype, kind = records[0].dtype, unit(records[0])
    rate = (measured.get(f"{kind}_tflops") or {}).get(dtype)
    text = f"ceilings measured here: copy {three(measured['copy_gbps'])} GB/s"
    text += f", {kind} {dtype} {three(rate)} TFLOP/s" if rate else ""
    sheet = hardware.peaks(environment.get("device_name") or "")
    if sheet is None:
        return text
    peak = sheet.tflops(dtype, kind)
    text += f"; {percent(measured['copy_gbps'] / sheet.bandwidth_gbps)} of {three(sheet.bandwidth_gbps)} GB/s"
    text += f" and {percent(rate / peak)} of {three(peak)} TFLOP/s" if rate and peak else ""
    return f"{text} by the sheet ({sheet.source})"
