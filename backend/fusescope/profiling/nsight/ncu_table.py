"""Nsight Compute's CSV in its three forms, as plain rows: one a launch and metric, in base units.

    long      --csv                            a row per metric, by section
    wide      --page raw --csv                 a row per launch; the line after the header holds the units
    summary   --print-summary per-kernel --csv a row per kernel and metric with minimum, maximum and average
              over its launches

Program output and ==PROF== lines come before the header and between rows. "n/a" is missing and never 0. The
same label stands in two sections with two units, so a metric is known by section and name.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from typing import Any

_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SECONDS = {
    "s": 1e9,
    "sec": 1e9,
    "second": 1e9,
    "ms": 1e6,
    "msec": 1e6,
    "msecond": 1e6,
    "us": 1e3,
    "usec": 1e3,
    "usecond": 1e3,
    "ns": 1.0,
    "nsec": 1.0,
    "nsecond": 1.0,
}
_SCALED = re.compile(
    r"([KMGTP]?)(byte|bit|hz|inst|cycle|block|warp|thread|sector|request)(/.+)?", re.IGNORECASE
)
_FIXED = (
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
)


@dataclass
class Launch:
    """One profiled launch (in a summary: one kernel over ``calls`` launches). metrics: (section, name) →
    (value, unit)."""

    id: str
    kernel: str
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    cc: str | None
    device: str | None
    calls: int = 1
    metrics: dict[tuple[str, str], tuple[Any, str]] = field(default_factory=dict)
    rules: list[dict] = field(default_factory=list)


@dataclass
class Report:
    """form: "long", "wide" or "summary"; launches in the order of the file; skipped: lines that are no
    row."""

    form: str
    launches: list[Launch]
    skipped: int


def parse(text: str, name: str) -> Report:
    """ValueError: one sentence with the file's name on why there is no table in it."""
    header, rows = _table(text, name)
    if "Metric Name" in header and "Average" in header:
        form = "summary"
    elif "Metric Name" in header:
        form = "long"
    elif len(header) > len(_FIXED):
        form = "wide"
    else:
        raise ValueError(
            f"{name} has a header of Nsight Compute without any metric: "
            "run ncu with --csv and --page raw or details"
        )
    units = (
        dict(zip(header, rows.pop(0))) if form == "wide" and rows and not any(rows[0][: len(_FIXED)]) else {}
    )
    launches: dict[tuple, Launch] = {}
    skipped = 0
    # rows of the long form end where the rule's columns begin, if they have none
    least = (
        len(header)
        if form == "wide"
        else 1 + header.index("Average" if form == "summary" else "Metric Value")
    )
    for row in rows:
        if not least <= len(row) <= len(header):
            skipped += 1
            continue
        cells = dict(zip(header, row + [""] * (len(header) - len(row))))
        launch = _launch(launches, cells, form)
        if form == "wide":
            for key in header:
                if key not in _FIXED and cells[key] != "":
                    launch.metrics["", key] = number(cells[key], units.get(key, ""))
        else:
            _long(launch, cells, "Average" if form == "summary" else "Metric Value")
    if not launches:
        raise ValueError(
            f"{name} has the header of Nsight Compute's table and no kernel under it: "
            + (complaint(text) or "nothing was profiled")
        )
    return Report(form, list(launches.values()), skipped)


def number(text: str, unit: str = "") -> tuple[float | str | None, str]:
    """A cell in base units (ns, byte, hz …): (4.96e9, "hz") of "4.96", "Ghz"; None for "n/a"; texts stay
    texts."""
    text, unit = text.strip(), unit.strip()
    if text.lower() in ("", "n/a", "nan", "inf", "-nan"):
        return None, unit
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return text, unit
    if unit in _SECONDS:
        return value * _SECONDS[unit], "ns"
    match = _SCALED.fullmatch(unit)
    if match:
        return value * _PREFIXES[match[1].upper()], f"{match[2].lower()}{match[3] or ''}"
    return value, unit


def _table(text: str, name: str) -> tuple[list[str], list[list[str]]]:
    lines = io.StringIO(text)
    while line := lines.readline():
        if "Kernel Name" in line and "," in line:
            try:
                header = next(csv.reader([line]))
            except (csv.Error, StopIteration):
                continue
            if "Kernel Name" in header:
                break
    else:
        why = complaint(text)
        raise ValueError(
            f'{name} holds no table of Nsight Compute (no line with "Kernel Name"){f": {why}" if why else ""}'
        )
    csv.field_size_limit(1 << 24)
    try:
        return header, [row for row in csv.reader(lines) if row]
    except csv.Error as error:
        raise ValueError(f"{name} is damaged or no CSV ({error})") from None


def complaint(text: str) -> str | None:
    """ncu's own words on why it measured nothing."""
    if "ERR_NVGPUCTRPERM" in text:
        return (
            "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM): "
            "an administrator allows it with the driver "
            "option NVreg_RestrictProfilingToAdminUsers=0, or run as root"
        )
    found = re.search(r"^==(?:ERROR|WARNING)== (.+)$", text, re.MULTILINE)
    return found[1].strip()[:300] if found else None


def _launch(launches: dict[tuple, Launch], cells: dict[str, str], form: str) -> Launch:
    name = cells["Kernel Name"]
    key = (cells.get("Process ID"), cells.get("ID", name), cells.get("Device"))
    if key not in launches:
        calls = cells.get("Invocations", "").replace(",", "")
        launches[key] = Launch(
            id=cells.get("ID") or str(len(launches)),
            kernel=name,
            grid=_triple(cells.get("Grid Size")),
            block=_triple(cells.get("Block Size")),
            cc=cells.get("CC") or None,
            device=cells.get("Device") or None,
            calls=int(calls) if calls.isdigit() else 1,
        )
    return launches[key]


def _long(launch: Launch, cells: dict[str, str], value: str) -> None:
    section, metric = cells.get("Section Name", ""), cells["Metric Name"]
    if metric:
        launch.metrics[section, metric] = number(cells.get(value, ""), cells.get("Metric Unit", ""))
    if cells.get("Rule Name"):
        speedup = number(cells.get("Estimated Speedup", ""))[0]
        launch.rules.append(
            {
                "section": section,
                "rule": cells["Rule Name"],
                "type": cells.get("Rule Type", ""),
                "says": cells.get("Rule Description", ""),
                "speedup_percent": speedup if isinstance(speedup, float) else None,
            }
        )


def _triple(text: str | None) -> tuple[int, int, int] | None:
    numbers = re.findall(r"\d+", text or "")
    return tuple(map(int, numbers)) if len(numbers) == 3 else None  # type: ignore[return-value]
