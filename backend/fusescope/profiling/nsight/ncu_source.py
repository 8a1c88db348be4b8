"""Import of Nsight Compute's source page: warp stall samples of each line of source and each instruction.

    ncu --import report.ncu-rep --page source --csv                             instructions (SASS)
    ncu --import report.ncu-rep --page source --csv --print-source cuda,sass    lines with their instructions

Tables: ncu_source, a row per line or instruction: launch, kernel, kind ("line" or "sass"), file, line (of an
instruction: the line it stands under), address, text, samples, instructions (executed), and stall_<reason>
columns of samples. Each listing begins with lines of two cells (Kernel Name or Function Name, File Name or
File Path) and its header. "-" and empty cells are missing and never 0.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fusescope.profiling import table
from fusescope.profiling.nsight import ncu_files
from fusescope.profiling.table import ABSENT, coded

SCHEMA = 1
MOST_ROWS = 2_000_000
HEADER = re.compile(rb'^"?(?:Line No"?,"?Source|(?:#"?,"?)?Address"?,"?Source)"?,', re.MULTILINE)
"""The header of a listing: what tells the page from the others."""
_KERNEL, _FILE = ("Kernel Name", "Function Name"), ("File Name", "File Path")
_SAMPLES = ("Warp Stall Sampling (All Samples)", "Warp Stall Sampling (All Cycles)", "# Samples")
_INSTRUCTIONS = "Instructions Executed"
_STALL = re.compile(r"stall_(\w+)$|smsp__pcsamp_warps_issue_stalled_(\w+?)(?<!_not_issued)$")
_MOST_REASONS, _LONG = 40, 2000
_WHOLE = (1 << 62) - 1


@dataclass
class _Listing:
    """One listing's place in the file: launch, kernel, file, and what its columns are."""

    launch: int
    kernel: str
    file: str | None
    names: list[str]
    line: int | None = None
    source: int | None = None
    address: int | None = None
    sass: int | None = None
    samples: int | None = None
    instructions: int | None = None
    reasons: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = self.names
        if names[0] in ("Line No", "#"):
            self.line, self.source = 0, names.index("Source")
        if "Address" in names:
            self.address = names.index("Address")
            self.sass = self.address + 1
        self.samples = next((names.index(n) for n in _SAMPLES if n in names), None)
        self.instructions = names.index(_INSTRUCTIONS) if _INSTRUCTIONS in names else None
        for place, name in enumerate(names):
            if (m := _STALL.fullmatch(name)) and len(self.reasons) < _MOST_REASONS:
                self.reasons.setdefault(m[1] or m[2], place)


def load(
    path: Path,
    target: Callable[[str], Path],
    progress: Callable[[float, str], None] = lambda share, text: None,
) -> dict:
    """Write the table and give the summary. ValueError: one sentence on why the file cannot be read."""
    path = Path(path)
    progress(0.1, "reading the source page")
    rows, notes = _rows(ncu_files.text(path), path.name, progress)
    if not any(r["samples"] for r in rows):
        notes.append("no line has a sample: collect with --section SourceCounters, or --set full")
    reasons = list(dict.fromkeys(k for r in rows for k in r["stalls"]))
    columns: dict = {
        "launch": np.array([r["launch"] for r in rows], np.int64),
        "line": np.array([_or_absent(r["line"]) for r in rows], np.int64),
        "samples": np.array([_or_absent(r["samples"]) for r in rows], np.int64),
        "instructions": np.array([_or_absent(r["instructions"]) for r in rows], np.int64),
    }
    for name in ("kernel", "kind", "file", "address", "text"):
        columns[name] = coded([r[name] for r in rows])
    for reason in reasons:
        columns[f"stall_{reason}"] = np.array([_or_absent(r["stalls"].get(reason)) for r in rows], np.int64)
    table.write(target("ncu_source.parquet"), columns)
    launches = len({r["launch"] for r in rows})
    summary = {
        "source": "ncu-source",
        "schema": SCHEMA,
        "file": path.name,
        "file_bytes": path.stat().st_size,
        "gpus": [],
        "rows": {"ncu_source": len(rows)},
        "launches": launches,
        "totals": {},
        "notes": notes,
    }
    target("summary.json").write_text(json.dumps(summary, indent=1))
    return summary


def _rows(text: str, name: str, progress: Callable) -> tuple[list[dict], list[str]]:
    """(rows of the table, notes)."""
    found: list[dict] = []
    listing, line, skipped, doubtful = None, None, 0, 0
    for cells, new in _listings(text, name):
        if new is not None:
            listing, line = new, None
            continue
        if listing is None or len(cells) > len(listing.names) + 1:  # a comma may end the header only
            skipped += 1
            continue
        row = _row(listing, cells, line)
        if row is None:
            skipped += 1
            continue
        line = row["line"]
        doubtful += row.pop("doubtful")
        found.append(row)
        if len(found) > MOST_ROWS:
            raise ValueError(f"{name} holds more than {MOST_ROWS:,} lines; export fewer kernels")
        if len(found) % 50_000 == 0:
            progress(0.5, f"{len(found):,} lines")
    if not found:
        raise ValueError(f"{name} has the header of Nsight Compute's source page and no line under it")
    notes = [f"lines skipped that are none of the listing: {skipped}"] if skipped else []
    if doubtful:
        notes.append(f"cells left out that hold no whole number: {doubtful}")
    return found, notes


def _listings(text: str, name: str) -> Iterator[tuple[list[str], _Listing | None]]:
    """(cells of a row, None), or ([], a listing) at each header."""
    csv.field_size_limit(1 << 24)
    kernel, last, file, launch = "", "", None, -1
    files: set[str | None] = set()
    try:
        for cells in csv.reader(io.StringIO(text)):
            while cells and cells[-1] == "":
                cells.pop()
            if not cells:
                continue
            if len(cells) == 2 and cells[0] in _KERNEL:
                kernel = cells[1]
            elif len(cells) == 2 and cells[0] in _FILE:
                file = cells[1]
            elif cells[0] in ("Line No", "Address", "#") and "Source" in cells:
                # a file of the same kernel goes on with its launch; else a new launch begins
                if launch < 0 or not (file is not None and kernel == last and file not in files):
                    launch, files = launch + 1, set()
                files, last = files | {file}, kernel
                yield [], _Listing(launch, kernel or "unknown kernel", file, cells)
            else:
                yield cells, None
    except csv.Error as error:
        raise ValueError(f"{name} is damaged or no CSV ({error})") from None


def _row(listing: _Listing, cells: list[str], line: int | None) -> dict | None:
    """One row of the table; None of what is neither a line nor an instruction."""

    def cell(place: int | None) -> str:
        return cells[place].rstrip() if place is not None and place < len(cells) else ""

    number, address = cell(listing.line).strip(), cell(listing.address).strip()
    if re.fullmatch(r"(0x)?[0-9a-fA-F]{1,16}", address):
        kind, text = "sass", cell(listing.sass).strip()
    elif number.isdecimal() and len(number) < 10:
        kind, line, text, address = "line", int(number), cell(listing.source), ""
    else:
        return None
    values = {k: _count(cell(p).strip()) for k, p in listing.reasons.items()}
    samples, executed = _count(cell(listing.samples).strip()), _count(cell(listing.instructions).strip())
    doubtful = sum(v is False for v in (*values.values(), samples, executed))
    return {
        "launch": listing.launch,
        "kernel": listing.kernel,
        "kind": kind,
        "file": listing.file,
        "line": line,
        "address": address or None,
        "text": text[:_LONG].rstrip(),
        "samples": samples or (None if samples is False else samples),
        "instructions": executed or (None if executed is False else executed),
        "stalls": {k: v for k, v in values.items() if v},
        "doubtful": doubtful,
    }


def _count(text: str) -> int | bool | None:
    """A whole number, with or without groups of digits; None of an empty cell, False of anything else."""
    if text in ("", "-", "n/a"):
        return None
    digits = re.sub(r"(?<=\d)[,.'’\u00a0\u202f](?=\d{3}\b)", "", text)
    digits = re.sub(r"\.0*$", "", digits)
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 18:
        return False
    return min(int(digits), _WHOLE)


def _or_absent(value: int | None) -> int:
    return ABSENT if value is None else value
