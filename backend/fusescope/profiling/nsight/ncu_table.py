"""Nsight Compute's CSV in its three forms, as plain rows: one per launch and metric, in base units.

    long      --csv                            a row per metric, by section
    wide      --page raw --csv                 a row per launch; the line after the header holds the units
    summary   --print-summary per-kernel --csv a row per kernel and metric with minimum, maximum and average
              over its launches

Program output and ==PROF== lines come before the header and between rows, and another table with a header of
its own may follow. "n/a" is missing and never 0. The same label is in two sections with two units, so a
metric is known by section and name.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from typing import Any

from fusescope.profiling.nsight.ncu_numbers import ambiguous, decimal_sign, number

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
    """One profiled launch (in a summary: one kernel over ``calls`` launches), of the file's table number
    ``table``. metrics: (section, name) → (value, unit)."""

    id: str
    kernel: str
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    cc: str | None
    device: str | None
    calls: int = 1
    table: int = 0
    metrics: dict[tuple[str, str], tuple[Any, str]] = field(default_factory=dict)
    rules: list[dict] = field(default_factory=list)


@dataclass
class Report:
    """form: "long", "wide" or "summary", of the first table; launches in the order of the file; skipped:
    lines that are no row; sign: the decimal sign; notes: sentences on what is missing or doubtful."""

    form: str
    launches: list[Launch]
    skipped: int = 0
    sign: str = "."
    notes: list[str] = field(default_factory=list)


@dataclass
class _Table:
    """header and its rows; torn: whether the last row lacks its end."""

    header: list[str]
    rows: list[list[str]]
    torn: bool = False

    @property
    def form(self) -> str | None:
        if "Metric Name" in self.header:
            return "summary" if "Average" in self.header else "long"
        return "wide" if len(self.header) > len(_FIXED) else None

    @property
    def value(self) -> str:
        """The column of values of the long forms."""
        return "Average" if self.form == "summary" else "Metric Value"

    @property
    def least(self) -> int:
        """Cells of a whole row; the long forms' end where the rule's columns begin, if there is no rule."""
        return len(self.header) if self.form == "wide" else 1 + self.header.index(self.value)

    def cells(self) -> list[str]:
        """All values as they are written."""
        if self.form == "wide":
            places = [n for n, key in enumerate(self.header) if key not in _FIXED]
        else:
            places = [self.header.index(self.value)]
        return [row[n] for row in self.rows for n in places if n < len(row)]


def parse(text: str, name: str) -> Report:
    """ValueError: one sentence with the file's name on why there is no table in it."""
    tables = _tables(text, name)
    report = Report(str(tables[0].form), [])
    cells = [cell for table in tables for cell in table.cells()]
    try:
        sign = decimal_sign(cells)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if sign is None and any(map(ambiguous, cells)):
        report.notes.append(
            "no number says whether commas group digits or begin decimals: read as groups of digits"
        )
    report.sign = sign or "."
    if report.sign == ",":
        report.notes.append("numbers were read with a decimal comma, as this file's locale writes them")
    launches: dict[tuple, Launch] = {}
    shared: set[tuple] = set()
    torn = 0
    for place, table in enumerate(tables):
        torn += _take(table, place, launches, shared, report)
    if not launches:
        raise ValueError(
            f"{name} has the header of Nsight Compute's table and no kernel under it: "
            + (complaint(text) or "nothing was profiled")
        )
    report.launches = list(launches.values())
    if len(tables) > 1:
        both = f", and {len(shared)} launches stand in more than one" if shared else ""
        report.notes.append(f"the file holds {len(tables)} tables, read one after the other{both}")
    if torn:
        end = "ends in the middle of a row: it is truncated" if tables[-1].torn else "has damaged rows"
        rows = "1 row was" if torn == 1 else f"{torn} rows were"
        report.notes.append(f"the table {end}, and {rows} left out")
    fewest = len(report.launches[-1].metrics)
    others = [len(launch.metrics) for launch in report.launches[:-1]]
    if others and fewest < min(others) / 2:
        report.notes.append(
            f"the last launch has {fewest} metrics, the others at least {min(others)}: "
            "the table may be truncated"
        )
    return report


def _take(table: _Table, place: int, launches: dict, shared: set[tuple], report: Report) -> int:
    """Add a table's rows to the launches; gives how many are torn."""
    header, form, rows = table.header, table.form, table.rows
    units = (
        dict(zip(header, rows.pop(0))) if form == "wide" and rows and not any(rows[0][: len(_FIXED)]) else {}
    )
    first, torn = "ID" if "ID" in header else header[0], 0
    at = header.index(first)
    for n, row in enumerate(rows):
        last = table.torn and n == len(rows) - 1
        if last or not table.least <= len(row) <= len(header):
            begun = len(row) > max(2, at) and row[at].strip().isdigit()
            torn += begun or last
            report.skipped += not (begun or last)
            continue
        cells = dict(zip(header, row + [""] * (len(header) - len(row))))
        launch = _launch(launches, cells, place, shared, form == "summary")
        if form == "wide":
            for key in header:
                if key not in _FIXED and cells[key] != "":
                    launch.metrics["", key] = number(cells[key], units.get(key, ""), report.sign)
        else:
            _long(launch, cells, table.value, report.sign)
    return torn


def _tables(text: str, name: str) -> list[_Table]:
    """The tables of a file, each from its header to the next one."""
    lines = io.StringIO(text)
    while line := lines.readline():
        header, separator = _header(line)
        if header:
            break
    else:
        why = complaint(text)
        raise ValueError(
            f'{name} holds no table of Nsight Compute (no line with "Kernel Name"){f": {why}" if why else ""}'
        )
    csv.field_size_limit(1 << 24)
    found, rest = [_Table(header, [])], lines.read().splitlines(keepends=True)
    reader, begun = csv.reader(rest, delimiter=separator), 0
    try:
        for row in reader:
            begun, before = reader.line_num, begun
            if "Kernel Name" in row and ("ID" in row or "Invocations" in row):
                found.append(_Table(row, []))
            elif row:
                found[-1].rows.append(row)
                found[-1].torn = "".join(rest[before:begun]).count('"') % 2 == 1
    except csv.Error as error:
        raise ValueError(f"{name} is damaged or no CSV ({error})") from None
    if any(table.form is None for table in found):
        raise ValueError(
            f"{name} has a header of Nsight Compute without any metric: "
            "run ncu with --csv and --page raw or details"
        )
    last = found[-1]
    if last.rows and not text.endswith("\n") and len(last.rows[-1]) < last.least:
        last.torn = True
    return found


def _header(line: str) -> tuple[list[str], str]:
    """(the names of a header line, what separates them); ([], "") of another line."""
    for separator in ",;\t" if "Kernel Name" in line else "":
        try:
            names = next(csv.reader([line], delimiter=separator), [])
        except csv.Error:
            continue
        if "Kernel Name" in names and len(names) > 1:
            return names, separator
    return [], ""


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


def _launch(
    launches: dict[tuple, Launch], cells: dict[str, str], place: int, shared: set[tuple], summary: bool
) -> Launch:
    """The launch of a row. Tables of one process that number the same kernel alike are pages of one
    report."""
    name = cells["Kernel Name"]
    process = cells.get("Process ID")
    key = (summary, process, cells.get("ID", name), cells.get("Device"), name if process else place)
    if key in launches:
        if launches[key].table != place:
            shared.add(key)
        return launches[key]
    calls = re.sub(r"\D", "", cells.get("Invocations", ""))
    launches[key] = Launch(
        id=cells.get("ID") or str(len(launches)),
        kernel=name,
        grid=_triple(cells.get("Grid Size")),
        block=_triple(cells.get("Block Size")),
        cc=(cells.get("CC") or "").replace(",", ".") or None,
        device=cells.get("Device") or None,
        calls=int(calls) if calls else 1,
        table=place,
    )
    return launches[key]


def _long(launch: Launch, cells: dict[str, str], value: str, sign: str) -> None:
    section, metric = cells.get("Section Name", ""), cells["Metric Name"]
    if metric:
        launch.metrics[section, metric] = number(cells.get(value, ""), cells.get("Metric Unit", ""), sign)
    if cells.get("Rule Name"):
        speedup = number(cells.get("Estimated Speedup", ""), "", sign)[0]
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
    """(1024, 1, 1) of "(1,024, 1, 1)" too; None of what is no three numbers."""
    inside = (text or "").strip().strip("()")
    parts = re.split(r"[,;]\s+" if re.search(r"[,;]\s", inside) else r"[,;x]", inside)
    digits = [re.sub(r"[\s.,'’\u00a0\u2009\u202f\ufffd]", "", part) for part in parts]
    if len(digits) != 3 or not all(d.isascii() and d.isdigit() for d in digits):
        return None
    return int(digits[0]), int(digits[1]), int(digits[2])
