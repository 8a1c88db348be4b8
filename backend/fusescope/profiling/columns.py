"""The tables of a profile and their columns."""

from __future__ import annotations

import numpy as np

from fusescope.profiling.table import Coded

TABLES = ("kernels", "operators", "launches", "copies", "ranges")


def empty(name: str) -> dict:
    """The columns of a table without rows, as they would be with some."""
    none, text = np.zeros(0, np.int64), Coded(np.zeros(0, np.int32), [])
    if name == "memory":
        return {
            c: none for c in ("ts_ns", "addr", "bytes", "allocated", "reserved", "device_type", "device_id")
        }
    if name == "counters":
        return {"ts_ns": none, "name": text, "series": text, "value": np.zeros(0)}
    columns: dict = {"ts_ns": none, "dur_ns": none, "name": text, "cat": text, "lane": np.zeros(0, np.int32)}
    columns |= {"external_id": none, "pid": text, "tid": text}
    if name in ("kernels", "launches", "copies"):
        columns["correlation"] = none
    if name in ("kernels", "copies"):
        columns |= {c: none for c in ("device", "stream", "graph", "graph_node")}
    if name in ("kernels", "launches"):
        columns |= {
            "grid": np.zeros((0, 3), np.int64),
            "block": np.zeros((0, 3), np.int64),
            "shared_bytes": none,
        }
    if name == "kernels":
        columns |= {"registers": none, "reported_occupancy": np.zeros(0), "collective": text}
    if name == "copies":
        columns |= {"bytes": none, "kind": text}
    if name == "operators":
        columns |= {"shapes": text, "types": text, "sequence": none, "hierarchy": text}
    return columns


def stack(parts: list[dict]) -> dict:
    """Tables of the same columns below each other."""
    found = {}
    for column, first in parts[0].items():
        if isinstance(first, Coded):
            values, codes = [], []
            for part in parts:
                own = part[column]
                codes.append(np.where(own.codes < 0, -1, own.codes + len(values)).astype(np.int32))
                values += own.values
            found[column] = Coded(np.concatenate(codes), values)
        else:
            found[column] = np.concatenate([part[column] for part in parts])
    return found
