"""Sums of a profile's tables: by kernel, operator and module name, by step, and the totals that must equal
the file's own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fusescope.profiling.derive import links
from fusescope.profiling.table import ABSENT, Coded, coded, same


def totals(tables: dict[str, dict]) -> dict[str, dict]:
    """Per category as the file names it ("" = none): {"events", "total_ns"}, exact sums over all tables."""
    found: dict[str, dict] = {}
    for table in tables.values():
        if "cat" not in table or not len(table["ts_ns"]):
            continue
        cat: Coded = table["cat"]
        codes = cat.codes + 1
        counts = np.bincount(codes, minlength=len(cat.values) + 1)
        for code in np.flatnonzero(counts).tolist():
            row = found.setdefault(cat.values[code - 1] if code else "", {"events": 0, "total_ns": 0})
            row["events"] += int(counts[code])
            row["total_ns"] += int(table["dur_ns"][codes == code].sum())
    return dict(sorted(found.items()))


def kernels(table: dict) -> dict:
    """One row per kernel name, longest first. Launch figures are those of its longest launch; ``launches``
    counts distinct ones, of those whose grid, block, registers or shared memory the file has.

    Columns: name, calls, total_ns, mean_ns, min_ns, max_ns, share, launches, grid_x … block_z, registers,
    shared_bytes, occupancy, grid_occupancy, limiter, launch_delay_ns (median of the known), operator, module
    (of the longest).
    """
    group, first, sums = _group(table, table["name"].codes)
    per = _figures(table["dur_ns"], group, sums)
    longest = _longest(table["dur_ns"], group, len(sums))
    shape = [group, *table["grid"].T, *table["block"].T, table["registers"], table["shared_bytes"]]
    _, kind = np.unique(same(shape), return_index=True)
    total = max(1, int(table["dur_ns"].sum()))
    row = {"name": table["name"][first], **per, "share": per["total_ns"] / total}
    told = np.max(np.stack(shape[1:]), axis=0)[kind] != ABSENT
    distinct = np.bincount(group[kind[told]], minlength=len(sums)).astype(np.int64)
    row["launches"] = np.where(distinct > 0, distinct, ABSENT)
    for column in _LAUNCH:
        row[column] = table[column][longest]
    row["launch_delay_ns"] = _medians(table["launch_delay_ns"], group, len(sums))
    row["operator"], row["module"] = table["operator_name"][longest], table["module"][longest]
    return _sorted(row, "total_ns")


_DEEP = 40  # modules within modules; a name with more dots than that is a stranger's joke
_LAUNCH = (
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
    "registers",
    "shared_bytes",
    "active_blocks",
    "occupancy",
    "grid_occupancy",
    "limiter",
)


def operators(table: dict, tables: dict[str, dict]) -> dict:
    """One row per operator name and input shapes: calls, host total and self, device total and self in ns;
    longest first.

    ``table`` gets the columns device_ns and self_device_ns: kernels and copies that it, or an operator in it,
    launched.
    """
    count = len(table["ts_ns"])
    own = np.zeros(count, np.int64)
    for name in ("kernels", "copies"):
        known = tables[name]["operator"] >= 0
        np.add.at(own, tables[name]["operator"][known], tables[name]["dur_ns"][known])
    whole = own.copy()
    order = np.argsort(-table["depth"], kind="stable")
    parents = table["parent"]
    # deepest first; one level at a time, so that a level's sums are complete before they are handed on
    edges = np.flatnonzero(np.diff(table["depth"][order])) + 1
    for level in np.split(order, edges) if count else ():
        inner = level[parents[level] >= 0]
        np.add.at(whole, parents[inner], whole[inner])
    table |= {"device_ns": whole, "self_device_ns": own}
    key = table["name"].codes.astype(np.int64) * (len(table["shapes"].values) + 1) + table["shapes"].codes
    group, first, sums = _group(table, key)
    row = {
        "name": table["name"][first],
        "shapes": table["shapes"][first],
        "calls": np.bincount(group, minlength=len(sums)).astype(np.int64),
    }
    for column, source in (
        ("host_ns", "dur_ns"),
        ("self_host_ns", "self_ns"),
        ("device_ns", "device_ns"),
        ("self_device_ns", "self_device_ns"),
    ):
        row[column] = _sum(table[source], group, len(sums))
    return _sorted(row, "self_device_ns", "self_host_ns")


def modules(tables: dict[str, dict]) -> dict:
    """One row per module (dotted): calls and host_ns of its ranges; kernels, device_ns launched in it,
    total_device_ns with what is under it; longest first. Empty where the file names no module."""
    path: Coded = tables["kernels"]["module"]
    rows: dict[str, dict] = {}

    def row(name: str) -> dict:
        return rows.setdefault(
            name, dict.fromkeys(("calls", "host_ns", "kernels", "device_ns", "total_device_ns"), 0)
        )

    ranges = tables["ranges"]
    there = ranges["module"].codes >= 0
    codes = ranges["module"].codes[there]
    for code, calls, ns in zip(*_counted(codes, ranges["dur_ns"][there])):
        entry = row(ranges["module"].values[code])
        entry["calls"], entry["host_ns"] = calls, ns
    there = path.codes >= 0
    for code, calls, ns in zip(*_counted(path.codes[there], tables["kernels"]["dur_ns"][there])):
        name = path.values[code]
        entry = row(name)
        entry["kernels"] += calls
        entry["device_ns"] += ns
        parts = name.split(".", _DEEP)
        for end in range(1, len(parts) + 1):
            row(".".join(parts[:end]))["total_device_ns"] += ns
    names = sorted(rows, key=lambda n: (-rows[n]["total_device_ns"], -rows[n]["host_ns"], n))
    columns = {
        c: np.array([rows[n][c] for n in names], np.int64)
        for c in ("calls", "host_ns", "kernels", "device_ns", "total_device_ns")
    }
    return {"module": coded(names), **columns}


def steps(tables: dict[str, dict]) -> dict:
    """One row per profiler step on the host: step, ts_ns, dur_ns; kernels launched in it, kernel_ns, copy_ns,
    idle_ns by cause."""
    starts, ends, numbers = links.steps(tables["ranges"])
    found = {"step": numbers, "ts_ns": starts, "dur_ns": ends - starts}
    each, place = np.unique(numbers, return_inverse=True)

    def per_step(table: dict) -> Callable[[np.ndarray], np.ndarray]:
        at = np.searchsorted(each, table["step"])
        rows = np.flatnonzero(np.append(each, ABSENT)[at] == table["step"])
        rows = rows[table["step"][rows] != ABSENT]
        return lambda what: _sum(what[rows], at[rows], len(each))[place.reshape(-1)]

    kernel, gap = tables["kernels"], tables["gaps"]
    of_kernels, of_gaps = per_step(kernel), per_step(gap)
    found["kernels"] = of_kernels(np.ones(len(kernel["ts_ns"]), np.int64))
    found["kernel_ns"] = of_kernels(kernel["dur_ns"])
    found["copy_ns"] = per_step(tables["copies"])(tables["copies"]["dur_ns"])
    for code, cause in enumerate(gap["cause"].values):
        found[f"idle_{cause}_ns"] = of_gaps(np.where(gap["cause"].codes == code, gap["dur_ns"], 0))
    return found


def causes(gaps: dict) -> dict[str, dict]:
    """Idle time of all devices by cause: {"gaps", "total_ns"}."""
    cause: Coded = gaps["cause"]
    mine = {name: cause.codes == code for code, name in enumerate(cause.values)}
    return {
        name: {"gaps": int(m.sum()), "total_ns": int(gaps["dur_ns"][m].sum())} for name, m in mine.items()
    }


def _counted(codes: np.ndarray, ns: np.ndarray):
    found, which = np.unique(codes, return_inverse=True)
    which = which.reshape(-1)
    return (
        found.tolist(),
        np.bincount(which, minlength=len(found)).tolist(),
        _sum(ns, which, len(found)).tolist(),
    )


def _group(table: dict, key: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(group of each row, first row of each group, groups)."""
    found, first, group = np.unique(key, return_index=True, return_inverse=True)
    return group.reshape(-1), first, found


def _figures(dur: np.ndarray, group: np.ndarray, groups: np.ndarray) -> dict:
    count = len(groups)
    calls = np.bincount(group, minlength=count).astype(np.int64)
    total = _sum(dur, group, count)
    low, high = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(low, group, dur)
    np.maximum.at(high, group, dur)
    return {
        "calls": calls,
        "total_ns": total,
        "mean_ns": total / np.maximum(calls, 1),
        "min_ns": low,
        "max_ns": high,
    }


def _sum(values: np.ndarray, group: np.ndarray, count: int) -> np.ndarray:
    """Exact: bincount's weights would be float64."""
    found = np.zeros(count, np.int64)
    np.add.at(found, group, values)
    return found


def _longest(dur: np.ndarray, group: np.ndarray, count: int) -> np.ndarray:
    order = np.lexsort((dur, group))
    return (
        order[np.searchsorted(group[order], np.arange(count), "right") - 1]
        if count
        else np.zeros(0, np.int64)
    )


def _medians(values: np.ndarray, group: np.ndarray, count: int) -> np.ndarray:
    found = np.full(count, np.nan)
    known = values != ABSENT
    order = np.lexsort((values, np.where(known, group, count)))
    ordered = np.where(known, group, count)[order]
    low, high = (
        np.searchsorted(ordered, np.arange(count), "left"),
        np.searchsorted(ordered, np.arange(count), "right"),
    )
    there = np.flatnonzero(high > low)
    a, b = order[(low[there] + high[there] - 1) // 2], order[(low[there] + high[there]) // 2]
    found[there] = (values[a].astype(np.float64) + values[b]) / 2
    return found


def _sorted(row: dict, *by: str) -> dict:
    order = np.lexsort(tuple(-row[c] for c in reversed(by)))
    return {name: column[order] for name, column in row.items()}
