"""Import of Nsight Compute: speed of light, measured occupancy, stall reasons and every metric, as tables.

ncu_kernels: one row per launch (see COLUMNS); ncu_metrics: launch, section, metric, unit, value, text;
ncu_stalls: launch, reason, value, unit, share; ncu_rules: what ncu advises. Times from ncu are never
latencies: it serialises, flushes and replays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fusescope.analysis import occupancy
from fusescope.profiling import table
from fusescope.profiling.nsight import ncu_bounds, ncu_files
from fusescope.profiling.nsight.ncu_numbers import number
from fusescope.profiling.nsight.ncu_table import Launch, Report, complaint
from fusescope.profiling.table import ABSENT, coded

__all__ = ["COLUMNS", "complaint", "kernel", "load", "stall_reasons"]
SCHEMA = 1
_SOL, _OCC, _LAUNCH = "GPU Speed Of Light Throughput", "Occupancy", "Launch Statistics"
COLUMNS: dict[str, tuple[str, tuple[str, str]]] = {
    "duration_ns": ("gpu__time_duration.sum", (_SOL, "Duration")),
    "sm_percent": ("sm__throughput.avg.pct_of_peak_sustained_elapsed", (_SOL, "Compute (SM) Throughput")),
    "memory_percent": (
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
        (_SOL, "Memory Throughput"),
    ),
    "dram_percent": ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", (_SOL, "DRAM Throughput")),
    "l1_percent": ("l1tex__throughput.avg.pct_of_peak_sustained_active", (_SOL, "L1/TEX Cache Throughput")),
    "l2_percent": ("lts__throughput.avg.pct_of_peak_sustained_elapsed", (_SOL, "L2 Cache Throughput")),
    "tensor_percent": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", ("", "")),
    "read_bytes": ("dram__bytes_read.sum", ("", "")),
    "written_bytes": ("dram__bytes_write.sum", ("", "")),
    "measured_occupancy": ("sm__warps_active.avg.pct_of_peak_sustained_active", (_OCC, "Achieved Occupancy")),
    "ncu_occupancy": ("sm__maximum_warps_per_active_cycle_pct", (_OCC, "Theoretical Occupancy")),
    "registers": ("launch__registers_per_thread", (_LAUNCH, "Registers Per Thread")),
    "static_bytes": ("launch__shared_mem_per_block_static", (_LAUNCH, "Static Shared Memory Per Block")),
    "dynamic_bytes": ("launch__shared_mem_per_block_dynamic", (_LAUNCH, "Dynamic Shared Memory Per Block")),
    "waves": ("launch__waves_per_multiprocessor", (_LAUNCH, "Waves Per SM")),
    "sms": ("launch__sm_count", (_LAUNCH, "# SMs")),
    "limit_warps": ("launch__occupancy_limit_warps", (_OCC, "Block Limit Warps")),
    "limit_registers": ("launch__occupancy_limit_registers", (_OCC, "Block Limit Registers")),
    "limit_shared": ("launch__occupancy_limit_shared_mem", (_OCC, "Block Limit Shared Mem")),
    "limit_blocks": ("launch__occupancy_limit_blocks", (_OCC, "Block Limit SM")),
}
"""Column → its metric in the raw page, and (section, label) in the details page. Percent of peak; occupancies
become 0 … 1."""
_UNITS = {"ns": ("ns",), "bytes": ("byte", "byte/block"), "percent": ("%", ""), "occupancy": ("%", "")}
"""Last word of a column → the units (ncu_numbers) in which a number is read: a time or a size without one may
be of any scale. Counts are read in every unit."""

_STALLS = (
    (re.compile(r"smsp__average_warps_issue_stalled_(\w+?)_per_issue_active\.ratio"), "warps per issue"),
    (re.compile(r"smsp__average_warp_latency_issue_stalled_(\w+?)\.(?:ratio|pct)"), "cycles per instruction"),
    (re.compile(r"smsp__warp_issue_stalled_(\w+?)_per_warp_active\.pct"), "% of warps"),
    (re.compile(r"smsp__pcsamp_warps_issue_stalled_(\w+?)(?<!_not_issued)$"), "samples"),
)
_STALL_RULE = re.compile(
    r"spends ([\d.,]+) cycles being stalled (.+?)\. .*?about ([\d.,]+)% of the total average", re.DOTALL
)


def load(
    path: Path,
    target: Callable[[str], Path],
    progress: Callable[[float, str], None] = lambda share, text: None,
    details: Path | None = None,
) -> dict:
    """Write the tables and give the summary. details: the details page of the same report, for what ncu
    advises and its labels.

    ValueError: one sentence on why the file cannot be read.
    """
    path, notes = Path(path), []
    progress(0.1, "reading the report")
    report = ncu_files.read(path)
    if details is not None:
        try:
            more = ncu_files.read(details).launches
        except ValueError as error:  # the metrics are there; what ncu advises is not
            more, notes = [], [f"without ncu's advice: {error}"]
        for launch, page in zip(report.launches, more):
            launch.metrics |= page.metrics
            launch.rules += page.rules
    rows = [kernel(launch) for launch in report.launches]
    notes += _unread(report)
    notes += report.notes + ncu_bounds.keep(rows, path.name)
    progress(0.6, f"{len(rows)} launches")
    stalls = [
        s | {"launch": n}
        for n, launch in enumerate(report.launches)
        for s in stall_reasons(launch, report.sign)
    ]
    rules = [r | {"launch": n} for n, launch in enumerate(report.launches) for r in launch.rules]
    metrics = [
        {
            "launch": n,
            "section": section,
            "metric": metric,
            "unit": unit,
            "value": value if isinstance(value, float) else None,
            "text": value if isinstance(value, str) else None,
        }
        for n, launch in enumerate(report.launches)
        for (section, metric), (value, unit) in launch.metrics.items()
    ]
    found = {"ncu_kernels": rows, "ncu_metrics": metrics, "ncu_stalls": stalls, "ncu_rules": rules}
    for name, data in found.items():
        if data:
            table.write(target(f"{name}.parquet"), _columns(data))
    notes += ["times under ncu are not latencies: launches are serialised, caches flushed, passes replayed"]
    if report.skipped:
        notes.append(f"{report.skipped} lines of program output between the rows were skipped")
    summary = {
        "source": "ncu",
        "schema": SCHEMA,
        "file": path.name,
        "file_bytes": path.stat().st_size,
        "form": report.form,
        "gpus": _gpus(report),
        "rows": {name: len(data) for name, data in found.items()},
        "totals": {},
        "notes": notes,
    }
    target("summary.json").write_text(json.dumps(summary, indent=1))
    return summary


def kernel(launch: Launch) -> dict:
    """The row of a launch in ncu_kernels; what was not measured is None."""
    row: dict = {
        "id": launch.id,
        "name": launch.kernel,
        "cc": launch.cc,
        "device": launch.device,
        "calls": launch.calls,
    }
    for name in ("grid", "block"):
        row |= dict(zip((f"{name}_{axis}" for axis in "xyz"), getattr(launch, name) or (None,) * 3))
    for column in COLUMNS:
        value, unit = _cell(launch, column)
        row[column] = value if _is_read(column, unit) else None
    for column in ("measured_occupancy", "ncu_occupancy"):
        row[column] = None if row[column] is None else row[column] / 100
    threads = np.prod(launch.block) if launch.block else None
    row |= {"occupancy": None, "limiter": None}
    if (
        threads
        and row["registers"] is not None
        and row["static_bytes"] is not None
        and row["dynamic_bytes"] is not None
    ):
        try:
            given = (int(row[c]) for c in ("registers", "static_bytes", "dynamic_bytes"))
            found = occupancy.theoretical(launch.cc, int(threads), *given)
            row |= {"occupancy": found.occupancy, "limiter": found.limiter}
        except ValueError:
            pass  # a compute capability without a table: ncu's own figure stands next to it
    return row


def _cell(launch: Launch, column: str) -> tuple[float | None, str]:
    """The number of a column and its unit, read or not."""
    raw, label = COLUMNS[column]
    value, unit = launch.metrics.get(("", raw), launch.metrics.get(label, (None, "")))
    if value is None:  # a metric that --metrics names is in a section of the long form
        value, unit = next((cell for (_, m), cell in launch.metrics.items() if m == raw), (None, ""))
    return (value, unit) if isinstance(value, float) else (None, unit)


def _is_read(column: str, unit: str) -> bool:
    return unit in _UNITS.get(column.rsplit("_", 1)[-1], (unit,))


def _unread(report: Report) -> list[str]:
    """A sentence on each column whose numbers have units in which they are not read."""
    found: dict[tuple[str, str], int] = {}
    for launch in report.launches:
        for column in COLUMNS:
            value, unit = _cell(launch, column)
            if value is not None and not _is_read(column, unit):
                found[column, unit] = found.get((column, unit), 0) + 1
    return [
        f"{COLUMNS[column][0]} is not read in {count} launch{'es' if count > 1 else ''}: "
        + (f"its unit is {unit!r}" if unit else "it has no unit")
        for (column, unit), count in found.items()
    ]


def stall_reasons(launch: Launch, sign: str = ".") -> list[dict]:
    """{"reason", "value", "unit", "share"} by share, largest first: from metrics, else from what ncu's rules
    say. sign: the decimal sign of the file."""
    for pattern, unit in _STALLS:
        found = {
            m[1]: v
            for (_, metric), (v, _) in launch.metrics.items()
            if (m := pattern.fullmatch(metric)) and isinstance(v, float)
        }
        if found:
            total = sum(found.values())
            rows = [
                {"reason": r, "value": v, "unit": unit, "share": v / total if total else None}
                for r, v in found.items()
            ]
            return sorted(rows, key=lambda r: -r["value"])
    rows = []
    for rule in launch.rules:
        if match := _STALL_RULE.search(rule["says"]):
            value, share = (_said(match[n], sign) for n in (1, 3))
            if value is None or share is None:
                continue
            rows.append(
                {
                    "reason": match[2],
                    "value": value,
                    "unit": "cycles per instruction",
                    "share": share / 100,
                }
            )
    return rows


def _said(text: str, sign: str) -> float | None:
    """A number in a rule's English sentence, which need not follow the locale of the cells."""
    for one in (sign, "."):
        value = number(text.rstrip(".,"), "", one)[0]
        if isinstance(value, float):
            return value
    return None


def _columns(rows: list[dict]) -> dict:
    """Columns of rows: numbers as float64 or int64, everything else as texts."""
    found = {}
    for name in dict.fromkeys(key for row in rows for key in row):
        values = [row.get(name) for row in rows]
        if all(v is None or isinstance(v, int) for v in values) and any(v is not None for v in values):
            found[name] = np.array([ABSENT if v is None else v for v in values], np.int64)
        elif (
            any(isinstance(v, float) for v in values)
            or name in COLUMNS
            or name in ("value", "share", "speedup_percent")
        ):
            found[name] = np.array([np.nan if v is None else v for v in values], np.float64)
        else:
            found[name] = coded([None if v is None else str(v) for v in values])
    return found


def _gpus(report: Report) -> list[dict]:
    found = {}
    for launch in report.launches:
        name = launch.metrics.get(("", "device__attribute_display_name"), (None, ""))[0]
        sms = kernel(launch)["sms"]
        device = int(launch.device) if (launch.device or "").isdigit() else None
        found[device] = {
            "id": device,
            "name": name if isinstance(name, str) else None,
            "cc": launch.cc,
            "sms": int(sms) if sms else None,
        }
    return list(found.values())
