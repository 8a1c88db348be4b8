"""What comparing runs needs to read of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from fusescope.core import naming
from fusescope.core.records import MODES, Record, Run, Time
from fusescope.store import folder, library

KINDS = ("bench", "model")
"""Kinds of runs that compare implementations."""


def read(run_ids: Iterable[str]) -> list[tuple[Run, tuple[Record, ...], float | None]]:
    """The runs so named (beginnings will do), each once, in this order: run, records, and the median SM clock
    in MHz seen while sampling, None where none was. RunError for an unknown or unreadable one."""
    paths = {path.name: path for path in map(library.find, run_ids)}
    return [(folder.read(p), tuple(folder.records(p)), median_clock(p)) for p in paths.values()]


def median_clock(path: Path) -> float | None:
    """The median SM clock in MHz over all samples of a run folder; None where it was not seen."""
    states = [s for line in folder.samples(path) for s in line.get("state") or [] if isinstance(s, dict)]
    clocks = sorted(s["sm_mhz"] for s in states if isinstance(s.get("sm_mhz"), int | float))
    return clocks[len(clocks) // 2] if clocks else None


def history(op: str | None = None, impl: str | None = None, device_name: str | None = None) -> list[dict]:
    """Every valid time of a comparison, a row for each record: op, impl, case (JSON, keys sorted), dtype,
    device_name, run, ended (Unix seconds), commit, times ({mode: Time}), source (the hash, of a peer the
    version of torch, None where neither is known), busy (whether others used the device meanwhile). RunError
    without duckdb."""
    runs = {run.id: run for kind in KINDS for run in library.runs(kind=kind, op=op, limit=1 << 30)[0]}
    table = library.records(op=op, impl=impl, device_name=device_name)
    table = table[(table["status"] == "ok") & table["run"].isin(list(runs))]
    rows = []
    for row in table.to_dict("records"):
        run = runs[row["run"]]
        if times := {mode: time for mode in MODES if (time := _time(row, mode))}:
            rows.append(
                {k: row[k] for k in ("op", "impl", "dtype", "device_name", "run")}
                | {"case": json.dumps(json.loads(row["case"]), sort_keys=True), "times": times}
                | {"ended": run.ended or 0.0, "commit": run.environment.get("git_commit")}
                | {"source": _source(row, run), "busy": isinstance(row["busy"], str)}
            )
    return rows


def _source(row: dict, run: Run) -> str | None:
    if isinstance(row["source_hash"], str):
        return row["source_hash"]
    torch = run.environment.get("torch")
    return f"torch {torch}" if torch and naming.kind(row["impl"]) == "peer" else None


def _time(row: dict, mode: str) -> Time | None:
    values = [row[f"{mode}_{part}"] for part in ("ms", "low_ms", "high_ms")]
    if any(v is None or v != v for v in values):
        return None
    n, converged = row[f"{mode}_n"], row[f"{mode}_converged"]
    return Time(*values, n=int(n) if n == n and n is not None else 0, converged=converged is True)
