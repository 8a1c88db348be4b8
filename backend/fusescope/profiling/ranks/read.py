"""The tables of one rank, as written, read back as activities."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from fusescope.analysis.ranks import intervals
from fusescope.analysis.ranks.activities import (
    ABSENT,
    COMMUNICATION,
    COMPUTE,
    MEMORY,
    Activities,
    is_communication,
)

_DEVICE = ("ts_ns", "dur_ns", "name", "stream", "device", "launch_delay_ns", "step")
_OWN = ("c10d::", "_c10d_functional::", "record_param_comms")  # hand a collective on, or wait for it


def has_device(folder: Path) -> bool:
    import pyarrow.parquet as pq

    return any(
        pq.read_metadata(folder / "artifacts" / f"{t}.parquet").num_rows for t in ("kernels", "copies")
    )


def activities(folder: Path, on_device: bool) -> Activities:
    """Of a folder laid out as a run's: kernels and copies of all its devices, or (on_device False) the
    outermost operators of its host and the ranges of gloo and other libraries that communicate."""
    parts = (
        [_device(folder, "kernels"), _device(folder, "copies")]
        if on_device
        else [_operators(folder), _ranges(folder)]
    )
    names: dict[str, int] = {}
    told: dict[str, int] = {}
    columns: dict[str, list[np.ndarray]] = {}
    for part in parts:
        for column, values in part.items():
            if column in ("name", "collective"):
                values = _codes(values, names if column == "name" else told)
            columns.setdefault(column, []).append(values)
    joined = {column: np.concatenate(values) for column, values in columns.items()}
    order = np.lexsort((joined["end"], joined["begin"]))
    joined = {column: values[order] for column, values in joined.items()}
    return Activities(
        **joined, names=list(names), collectives=[json.loads(t) for t in told], on_device=on_device
    )


def _device(folder: Path, table: str) -> dict:
    found = _columns(folder, table, [*_DEVICE, *(["collective"] if table == "kernels" else [])])
    begin, stream, device = found["ts_ns"], found["stream"], found["device"]
    delay = found["launch_delay_ns"]
    kind = np.full(len(begin), COMPUTE if table == "kernels" else MEMORY, np.int8)
    told = found.get("collective") or (np.full(len(begin), -1, np.int32), [])
    if table == "kernels":
        codes, texts = found["name"]
        talks = np.array([is_communication(t, True) for t in texts] + [False])[codes]
        kind[talks | (told[0] >= 0)] = COMMUNICATION
        told = _told(folder, told, (kind == COMMUNICATION) & (told[0] < 0), begin - delay, delay != ABSENT)
    streams = np.where(device == ABSENT, 0, device) * (1 << 32) + np.where(stream == ABSENT, 0, stream)
    return {
        "begin": begin,
        "end": begin + found["dur_ns"],
        "kind": kind,
        "stream": streams,
        "launch": np.where(delay == ABSENT, ABSENT, begin - delay),
        "step": found["step"],
        "name": found["name"],
        "collective": told,
    }


def _told(folder: Path, told, nameless: np.ndarray, launch: np.ndarray, known: np.ndarray):
    """The collectives' texts, where a kernel has none from the range "nccl:…" in which the host launched
    it, if that is one alone."""
    rows = np.flatnonzero(nameless & known)
    if not len(rows):
        return told
    ranges = _columns(folder, "ranges", ["ts_ns", "dur_ns", "name", "cat"])
    codes, texts = ranges["name"]
    kinds, cats = ranges["cat"]
    host = ~np.array([c.startswith("gpu_") for c in cats] + [False])[kinds]
    host &= np.array([t.startswith("nccl:") for t in texts] + [False])[codes]
    begin, end, names = ranges["ts_ns"][host], ranges["dur_ns"][host], codes[host]
    if not len(begin):
        return told
    order = np.argsort(begin, kind="stable")
    begin, end, names = begin[order], (begin + end)[order], names[order]
    at = np.searchsorted(begin, launch[rows], "right") - 1
    open_ = np.searchsorted(begin, launch[rows], "right") - np.searchsorted(
        np.sort(end), launch[rows], "left"
    )
    inside = (at >= 0) & (open_ == 1) & (end[np.maximum(at, 0)] >= launch[rows])
    found = told[0].copy()
    found[rows[inside]] = len(told[1]) + names[at[inside]]
    return found, [*told[1], *(json.dumps({"name": t}) for t in texts)]


def _operators(folder: Path) -> dict:
    found = _columns(folder, "operators", ["ts_ns", "dur_ns", "name", "depth", "tid"])
    codes, texts = found["name"]
    own = np.array([t.startswith(_OWN) for t in texts] + [False])[codes]
    # an operator on a tensor that a collective still fills waits first: that is no arithmetic
    begin, end, line = found["ts_ns"], found["ts_ns"] + found["dur_ns"], found["tid"][0]
    waits = own & (found["depth"] > 0)
    begun = intervals.after_waits(begin, end, line, (begin[waits], end[waits], line[waits]))
    found |= {"ts_ns": begun, "dur_ns": end - begun}
    return _host(folder, found, (found["depth"] == 0) & ~own, COMPUTE)


def _ranges(folder: Path) -> dict:
    found = _columns(folder, "ranges", ["ts_ns", "dur_ns", "name", "tid"])
    codes, texts = found["name"]
    talks = np.array([is_communication(t, False) for t in texts] + [False])[codes]
    return _host(folder, found, talks, COMMUNICATION)


def _host(folder: Path, found: dict, rows: np.ndarray, kind: int) -> dict:
    begin = found["ts_ns"][rows]
    count = len(begin)
    codes, texts = found["name"]
    return {
        "begin": begin,
        "end": begin + found["dur_ns"][rows],
        "kind": np.full(count, kind, np.int8),
        "stream": found["tid"][0][rows].astype(np.int64) + (1 << 20) * kind,
        "launch": np.full(count, ABSENT),
        "step": _steps(folder, begin),
        "name": (codes[rows], texts),
        "collective": (np.full(count, -1, np.int32), []),
    }


def _steps(folder: Path, when: np.ndarray) -> np.ndarray:
    """The profiler's step at each time."""
    each = _columns(folder, "steps", ["step", "ts_ns", "dur_ns"])
    if not len(each["ts_ns"]):
        return np.full(len(when), ABSENT)
    at = np.searchsorted(each["ts_ns"], when, "right") - 1
    last = np.maximum(at, 0)
    inside = (at >= 0) & (when <= each["ts_ns"][last] + each["dur_ns"][last])
    return np.where(inside, each["step"][last], ABSENT)


def _columns(folder: Path, table: str, wanted: list[str]) -> dict:
    """Columns of a table that are there: int64 with ABSENT, texts as (codes, values)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = folder / "artifacts" / f"{table}.parquet"
    known = pq.read_schema(file).names
    read = pq.read_table(file, columns=[c for c in wanted if c in known])
    found: dict = {}
    for name in read.column_names:
        column = read[name].combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
        if pa.types.is_dictionary(column.type):
            codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
            found[name] = (codes, column.dictionary.to_pylist())
        else:
            found[name] = column.cast(pa.int64()).fill_null(ABSENT).to_numpy(zero_copy_only=False)
    return found


def _codes(column: tuple[np.ndarray, list[str]], texts: dict[str, int]) -> np.ndarray:
    """The codes of a column in a list of texts that it shares with others."""
    codes, values = column
    shared = np.array([texts.setdefault(v, len(texts)) for v in values] + [-1], np.int32)
    return shared[codes]
