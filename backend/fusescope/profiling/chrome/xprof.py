"""Traces of XLA's profiler (JAX, TensorFlow): events without categories, distinguished by the names that
metadata events give to processes and threads.

A device is a process "/device:GPU:0"; its threads "Stream #13(Compute)" hold kernels and copies. A TPU has no
streams: its thread "XLA Ops" holds what it ran. The device's other threads (XLA Modules, Steps …) say the
same once more and stay ranges.
"""

from __future__ import annotations

import re

import numpy as np

from fusescope.profiling.chrome.categories import direction
from fusescope.profiling.columns import empty, stack
from fusescope.profiling.table import ABSENT, Coded, coded

_DEVICE = re.compile(r"/device:[A-Za-z_]+:(\d+)")
_STREAM = re.compile(r"stream\s*#?(\d+)", re.IGNORECASE)
_OPS = "XLA Ops"
_DIRECTIONS = {"H2D": "HtoD", "D2H": "DtoH", "D2D": "DtoD", "P2P": "PtoP", "H2H": "HtoH"}


def separate(tables: dict[str, dict], names: dict[tuple, str]) -> list[str]:
    """Move the devices' events from the ranges to kernels and copies; gives a sentence on it where there are
    some. names: (pid,) → process, (pid, tid) → thread, as texts."""
    ranges = tables["ranges"]
    devices = {
        pid[0]: int(m[1]) for pid, name in names.items() if len(pid) == 1 and (m := _DEVICE.search(name))
    }
    if not devices or not len(ranges["ts_ns"]):
        return []
    device, stream = (np.full(len(ranges["ts_ns"]), ABSENT, np.int64) for _ in range(2))
    lanes = _lanes(names, devices)
    notes = _without_lanes(ranges, names, devices, {pid for pid, _ in lanes})
    for (pid, tid), number in lanes.items():
        rows = ranges["pid"].mask(lambda text, pid=pid: text == pid)
        rows &= ranges["tid"].mask(lambda text, tid=tid: text == tid) & (ranges["cat"].codes < 0)
        device[rows], stream[rows] = devices[pid], number
    there = device != ABSENT
    if not there.any():
        return notes
    moves = ranges["name"].mask(lambda name: name.lower().startswith(("memcpy", "memset")))
    for table, rows in (("kernels", there & ~moves), ("copies", there & moves)):
        if rows.any():
            tables[table] = stack([tables[table], _rows(table, ranges, rows, device, stream)])
    tables["ranges"] = {c: v[~there] for c, v in ranges.items()}
    count = len(np.unique(device[there]))
    return [
        f"XLA's profiler: {int(there.sum()):,} events of {count} device{'s' if count > 1 else ''} are read "
        "as kernels and copies by the names of their threads; such traces link no kernel to its launch",
        *notes,
    ]


def _without_lanes(
    ranges: dict, names: dict[tuple, str], devices: dict[str, int], known: set[str]
) -> list[str]:
    """A sentence on each device that has events and no thread of which kernels are known: no figure counts
    it, as one that ran nothing would be counted."""
    found = []
    for pid, number in sorted(devices.items(), key=lambda device: device[1]):
        count = int(ranges["pid"].mask(lambda text, pid=pid: text == pid).sum())
        if pid in known or not count:
            continue
        threads = sorted({name for key, name in names.items() if len(key) == 2 and key[0] == pid})
        said = ", ".join(repr(name) for name in threads[:4]) + (", …" if len(threads) > 4 else "")
        found.append(
            f"device {number} has {count:,} events and no thread known to hold kernels "
            f"({said or 'no thread has a name'}): they stay ranges, and nothing is said of its kernels or "
            "idle time"
        )
    return found


def _lanes(names: dict[tuple, str], devices: dict[str, int]) -> dict[tuple[str, str], int]:
    """(pid, tid) of the threads that hold what a device ran → the number of the stream."""
    threads = {key: name for key, name in names.items() if len(key) == 2 and key[0] in devices}
    found = {key: int(m[1]) for key, name in threads.items() if (m := _STREAM.match(name))}
    without = devices.keys() - {pid for pid, _ in found}
    return found | {key: 0 for key, name in threads.items() if key[0] in without and name == _OPS}


def _rows(table: str, ranges: dict, rows: np.ndarray, device: np.ndarray, stream: np.ndarray) -> dict:
    """Rows of the ranges as rows of another table; what only that one has is absent."""
    count, found = int(rows.sum()), {}
    for column, none in empty(table).items():
        if column in ranges:
            found[column] = ranges[column][rows]
        elif isinstance(none, Coded):
            found[column] = Coded(np.full(count, -1, np.int32), [])
        else:
            absent = np.nan if none.dtype == np.float64 else ABSENT
            found[column] = np.full((count, *none.shape[1:]), absent, none.dtype)
    found |= {"device": device[rows], "stream": stream[rows]}
    if table == "copies":
        texts = [_direction(name) for name in ranges["name"].values]
        codes = ranges["name"].codes[rows].tolist()
        found["kind"] = coded([texts[code] if code >= 0 else None for code in codes])
    return found


def _direction(name: str) -> str | None:
    return next((to for word, to in _DIRECTIONS.items() if word in name), direction(name, None))
