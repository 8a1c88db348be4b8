"""Runs as text: the library as a table, one run with what it holds, several compared (and that as JSON)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fusescope.analysis.compare.columns import Cell, Comparison, Source
from fusescope.analysis.compare.conditions import Answer
from fusescope.charts import captions
from fusescope.charts.numbers import seconds, size, three
from fusescope.cli.output import table
from fusescope.cli.tables.records import show as record_table
from fusescope.core.records import Record, Run
from fusescope.jobs import kinds

_VERSIONS = ("driver", "torch", "cuda", "nvcc", "git_commit")


def listing(found: Sequence[Run], broken: Sequence[tuple[str, str]], total: int, offset: int) -> str:
    """A page of the library; a run that cannot be read is a line that says why."""
    rows = [[r.id, r.status, kinds.name(r), r.device_name, when(r.created), ", ".join(r.tags)] for r in found]
    none = f"nothing at --offset {offset}: {total:,} match" if total else "no run matches"
    text = table(["run", "status", "what", "device", "made", "tags"], rows) if rows else none
    last = offset + len(found)
    if total > last:
        text += f"\n{offset + 1}–{last} of {total}; --offset {last} shows the next"
    return text + "".join(f"\n{run_id}  unreadable: {reason}" for run_id, reason in broken)


def whole(run: Run, path: Path, records: Sequence[Record], artifacts: Sequence[dict[str, Any]]) -> str:
    """One run: state, device, times, notes, records and artifacts."""
    env = run.environment
    lines = [status(run), f"{kinds.name(run)}  {path}"]
    versions = ", ".join(f"{k} {env[k]}" for k in _VERSIONS if env.get(k))
    lines.append(f"on {run.device_name}" + (f" ({versions})" if versions else ""))
    took = f", took {seconds(run.finished - run.started)}" if run.finished and run.started else ""
    lines.append(f"made {when(run.created)}{took}")
    lines += ["imported: its creator chose its content and the files it names"] if run.imported else []
    lines += [f"tags {', '.join(run.tags)}"] if run.tags else []
    lines += [run.notes] if run.notes else []
    lines += ["", record_table(records, run.spec.get("baseline"), env)] if records else []
    lines += ["", *(f"artifact {a['name']}  {size(a['bytes'])}" for a in artifacts)] if artifacts else []
    return "\n".join(lines)


def status(run: Run) -> str:
    """ "20260131-235959-bench-1a2b3c  failed: the disk is full"."""
    return f"{run.id}  {run.status}" + (f": {run.reason}" if run.reason else "")


def when(created: float | None) -> str:
    """A date and time; one that this machine's clock has not reached is said."""
    if created is None:
        return "n/a"
    ahead = " (in the future)" if created > time.time() + 60 else ""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(created)) + ahead


def comparison(sources: Sequence[Source], answers: Sequence[Answer], found: Comparison) -> str:
    """Which runs, whether they may be compared, what each column says, and the table."""
    from fusescope.charts.compared import differences, pairs, undecided

    lines = [
        f"{pairs.letter(n)} = {s.run.id}  {s.run.device_name}, {captions.when(s.run)}"
        for n, s in enumerate(sources)
    ]
    for n, one in enumerate(answers, 1):
        lines += ["", f"May {pairs.letter(n)} be compared with A? {one.text}"]
        lines += [one.control.text] if one.control and not one.control.failed else []
        lines += [f"! {caution}" for caution in one.cautions]
    names = pairs.names(found)
    lines += [""]
    for n in range(1, len(names)):
        said = pairs.sentence(found, n, names), undecided.sentence(found, n)
        lines += filter(None, (*said, differences.sentence(found, n, names)))
    data = pairs.table(found, names)
    rows = [[_cell(value) for value in row] for row in data.itertuples(index=False, name=None)]
    numeric = ["r" if data[c].dtype.kind == "f" else "l" for c in data.columns]
    return "\n".join([*lines, "", table(list(data.columns), rows, "".join(numeric)) if rows else "no record"])


def comparison_data(
    sources: Sequence[Source], answers: Sequence[Answer], found: Comparison
) -> dict[str, Any]:
    """The same as JSON; times in ms, ratios > 1 faster than the base column."""
    base = sources[0].run.id
    return {
        "runs": [s.run.id for s in sources],
        "comparable": [
            {
                "run": source.run.id,
                "with": base,
                "yes": one.yes,
                "text": one.text,
                "same": list(one.same),
                "edited": list(one.edited),
                "unknown": list(one.unknown),
                "check": one.control.text if one.control else None,
                "cautions": list(one.cautions),
            }
            for source, one in zip(sources[1:], answers, strict=True)
        ],
        "by": found.by,
        "columns": list(found.columns),
        "rows": [
            {"op": row.op, "impl": row.impl, "case": row.case, "dtype": row.dtype, "device": row.device}
            | {"mode": row.mode, "cells": [_json(cell) for cell in row.cells]}
            for row in found.rows
        ],
    }


def _json(cell: Cell) -> dict[str, Any]:
    time, ratio = cell.time, cell.ratio
    return {
        "run": cell.run.id if cell.run else None,
        "status": cell.status,
        "ms": time.median if time else None,
        "low_ms": time.low if time else None,
        "high_ms": time.high if time else None,
        "ratio": ratio.median if ratio else None,
        "low": ratio.low if ratio else None,
        "high": ratio.high if ratio else None,
        "verdict": cell.verdict.verdict if cell.verdict else None,
        "no_verdict": cell.unlike.text if cell.unlike else None,
        "source_hash": cell.record.source_hash if cell.record else None,
    }


def _cell(value) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return three(value) if isinstance(value, float) else str(value)
