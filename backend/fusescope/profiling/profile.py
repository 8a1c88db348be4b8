"""From the tables of any profiler to a run's files: links, occupancy, gaps and sums added, Parquet and
summary.json written.

Files next to each other in one folder, times in ns (absolute where the file has a clock), absent values null:
kernels, operators, launches, copies, ranges, gaps, memory, counters .parquet: one row per event;
kernel_summary, operator_summary, module_summary, steps .parquet: one row per name, or a step; summary.json:
everything small.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fusescope.profiling import table
from fusescope.profiling.derive import gaps, launches, links, nesting, plausible, summary
from fusescope.profiling.table import ABSENT

SCHEMA = 1
_DROP = ("grid", "block", "lane", "hierarchy")  # as columns of their own, or texts, in the files


def save(
    tables: dict[str, dict],
    target: Callable[[str], Path],
    facts: dict,
    gpus: list[dict],
    report: Callable[[str], None] = lambda text: None,
    captured: list[dict] | None = None,
) -> dict:
    """Write everything and give the summary. ``target(name)`` names a file; ``facts`` are merged into the
    summary; ``report`` gets what is being done, and may raise; ``captured``: kernels of the eager run that
    graphs of this one were captured from.
    """
    report("nesting operators")
    nesting.nest(tables["operators"], tables["ranges"], tables["launches"])
    report("linking kernels to launches, operators and modules")
    covered = links.link(tables, captured)
    notes = list(facts.get("notes", ())) + launches.describe(tables["kernels"], tables["launches"], gpus)
    notes += plausible.notes(tables)
    copies = tables["copies"]
    moved = (copies["bytes"] != ABSENT) & (copies["dur_ns"] > 0)
    copies["gbps"] = np.where(moved, copies["bytes"] / np.maximum(copies["dur_ns"], 1), np.nan)
    report("finding idle gaps")
    tables["gaps"] = gaps.find(tables)
    report("adding up")
    sums = {
        "kernel_summary": summary.kernels(tables["kernels"]),
        "operator_summary": summary.operators(tables["operators"], tables),
        "module_summary": summary.modules(tables),
        "steps": summary.steps(tables),
    }
    whole = facts | {
        "schema": SCHEMA,
        "gpus": gpus,
        "rows": {name: len(t["ts_ns"]) for name, t in tables.items()},
        "totals": summary.totals(tables),
        "devices": gaps.busy(tables),
        "idle": summary.causes(tables["gaps"]),
        "longest_gaps": gaps.longest(tables["gaps"]),
        "coverage": covered,
        "span_ns": _span(tables),
        "notes": notes,
    }
    told = tables["kernels"].get("collective")
    if told is None or not (told.codes >= 0).any():
        tables["kernels"].pop("collective", None)
    for name, columns in (tables | sums).items():
        report(f"writing {name}")
        table.write(target(f"{name}.parquet"), {k: c for k, c in columns.items() if k not in _DROP})
    target("summary.json").write_text(json.dumps(whole, indent=1))
    return whole


def _span(tables: dict[str, dict]) -> list[int] | None:
    """First and last ns of everything but the profiler's own frame around it, which is a range: of ranges
    only where there is nothing else."""
    for names in (("kernels", "operators", "launches", "copies"), ("ranges",)):
        found = [t for name in names if len((t := tables[name])["ts_ns"])]
        if found:
            ends = [int((t["ts_ns"] + t["dur_ns"]).max()) for t in found]
            return [min(int(t["ts_ns"].min()) for t in found), max(ends)]
    return None
