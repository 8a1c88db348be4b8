"""Import of an Nsight Systems export (nsys export --type sqlite): the same tables as from a trace.

The file is opened read-only. NVTX push/pop ranges take the place of operators; categories are kernel, memcpy,
memset, runtime, nvtx, sync, graph, osrt and overhead.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import numpy as np

from fusescope.profiling import profile
from fusescope.profiling.columns import empty, stack
from fusescope.profiling.nsight.nsys_export import Export
from fusescope.profiling.table import ABSENT, Coded, same

_PROCESS = ~0xFFFFFF  # of a globalTid: what is left is the globalPid
_COPY_KINDS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
}
_SYNC_KINDS = {
    1: "event synchronize",
    2: "stream wait event",
    3: "stream synchronize",
    4: "context synchronize",
}  # CUPTI's
_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"  # a launch of a graph as one row, where nodes were not traced
_PUSH_POP, _START_END = 59, 60  # NVTX event types with an end


def load(
    path: Path,
    target: Callable[[str], Path],
    progress: Callable[[float, str], None] = lambda share, text: None,
    captured: list[dict] | None = None,
) -> dict:
    """Write the tables and give the summary; captured: see ``profile.save``.

    ValueError: one sentence on why the file is no such export.
    """
    path = Path(path)
    try:
        with closing(
            sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)
        ) as con:
            return _load(Export(con, path.name), path, target, progress, captured)
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path.name} is a damaged or truncated SQLite file ({error})") from None


def _load(export: Export, path: Path, target, progress, captured) -> dict:
    progress(0.1, "reading kernels and copies")
    tables = {
        name: empty(name)
        for name in ("kernels", "operators", "launches", "copies", "ranges", "memory", "counters")
    }
    tables["kernels"] = _kernels(export)
    tables["copies"] = stack([_copies(export, "MEMCPY"), _copies(export, "MEMSET")])
    progress(0.3, "reading API calls and ranges")
    tables["launches"] = _launches(export)
    tables["operators"], ranges = _nvtx(export)
    tables["ranges"] = stack([ranges, *_others(export)])
    tables["memory"] = _memory(export)
    _scope(tables)
    clock = export.read("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")["utcEpochNs"]
    origin = int(clock[0]) if len(clock) and clock[0] != ABSENT else 0
    for t in tables.values():
        t["ts_ns"] += origin
    count = sum(len(t["ts_ns"]) for t in tables.values())
    if not count:
        raise ValueError(
            f"{path.name} holds neither kernels, copies, API calls nor NVTX ranges: nothing to show"
        )
    notes = [] if origin else ["the file does not say when it was begun: times are relative"]
    notes += [
        f"{count:,} rows of {table} have no time, no end or one before the start, and are left out"
        for table, count in export.left_out.items()
    ]
    whole = int(tables["ranges"]["cat"].mask(lambda cat: cat == "graph").sum())
    if whole:
        notes.append(
            f"{whole} launches of CUDA graphs were traced as a whole: their kernels are not in the file, "
            "and the device looks idle meanwhile; nsys profile --cuda-graph-trace=node records them"
        )
    facts = {
        "source": "nsys",
        "file": path.name,
        "file_bytes": path.stat().st_size,
        "events": count,
        "notes": notes,
        "metadata": {
            k: export.facts[k]
            for k in ("EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION")
            if k in export.facts
        },
    }
    return profile.save(tables, target, facts, export.gpus(), lambda text: progress(0.7, text), captured)


def _span(export: Export, found: dict, names: Coded, cat: str, lane: np.ndarray, pid, tid) -> dict:
    """The columns that every table of spans has. Spans that never ended last until they began."""
    dur = np.where(found["end"] == ABSENT, 0, found["end"] - found["start"])
    count = len(dur)
    return {
        "ts_ns": found["start"],
        "dur_ns": np.maximum(dur, 0),
        "name": names,
        "cat": Coded(np.zeros(count, np.int32), [cat]),
        "lane": lane,
        "external_id": np.full(count, ABSENT, np.int64),
        "pid": _numbers(pid),
        "tid": _numbers(tid),
    }


def _numbers(values: np.ndarray) -> Coded:
    distinct, codes = np.unique(values, return_inverse=True)
    return Coded(
        codes.reshape(-1).astype(np.int32), ["" if v == ABSENT else str(v) for v in distinct.tolist()]
    )


def _on_device(export: Export, table: str, extra: tuple[str, ...], names, cat: str) -> tuple[dict, dict]:
    common = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId", "graphNodeId")
    found = export.spans(f"CUPTI_ACTIVITY_KIND_{table}", *common, *extra)
    lane = found["deviceId"] * 4096 + found["streamId"]
    row = _span(export, found, names(found), cat, lane, found["deviceId"], found["streamId"])
    row |= {"device": found["deviceId"], "stream": found["streamId"], "correlation": found["correlationId"]}
    return row | {
        "graph": found["graphId"],
        "graph_node": found["graphNodeId"],
        "process": found["globalPid"],
    }, found


def _kernels(export: Export) -> dict:
    shape = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
    extra = (
        *shape,
        "demangledName",
        "shortName",
        "registersPerThread",
        "staticSharedMemory",
        "dynamicSharedMemory",
    )

    def names(found: dict) -> Coded:
        return export.text(
            np.where(found["demangledName"] == ABSENT, found["shortName"], found["demangledName"])
        )

    row, found = _on_device(export, "KERNEL", extra, names, "kernel")
    static, dynamic = found["staticSharedMemory"], found["dynamicSharedMemory"]
    known = (static != ABSENT) & (dynamic != ABSENT)
    row |= {name: np.column_stack([found[f"{name}{axis}"] for axis in "XYZ"]) for name in ("grid", "block")}
    row["shared_bytes"] = np.where(known, np.where(known, static, 0) + np.where(known, dynamic, 0), ABSENT)
    row |= {"registers": found["registersPerThread"], "reported_occupancy": np.full(len(static), np.nan)}
    return row


def _copies(export: Export, table: str) -> dict:
    def names(found: dict) -> Coded:
        kinds, codes = np.unique(found["copyKind"], return_inverse=True)
        texts = [
            "Memset" if table == "MEMSET" else f"Memcpy {_COPY_KINDS.get(k, 'of unknown kind')}"
            for k in kinds.tolist()
        ]
        return Coded(codes.reshape(-1).astype(np.int32), texts)

    row, found = _on_device(export, table, ("bytes", "copyKind"), names, table.lower())
    plain = [text.removeprefix("Memcpy ") if text != "Memset" else "memset" for text in row["name"].values]
    return row | {"bytes": found["bytes"], "kind": Coded(row["name"].codes, plain)}


def _launches(export: Export) -> dict:
    found = export.spans(
        "CUPTI_ACTIVITY_KIND_RUNTIME", "start", "end", "globalTid", "correlationId", "nameId"
    )
    row = _span(export, found, export.text(found["nameId"]), "runtime", *_thread(found["globalTid"]))
    count = len(found["start"])
    nothing = np.full((count, 3), ABSENT, np.int64)
    row |= {"correlation": found["correlationId"], "process": found["globalTid"] & _PROCESS}
    return row | {"grid": nothing, "block": nothing.copy(), "shared_bytes": np.full(count, ABSENT, np.int64)}


def _thread(global_tid: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(lane, process id, thread id) of nsys's global thread ids."""
    return global_tid, (global_tid >> 24) & 0xFFFFFF, global_tid & 0xFFFFFF


def _nvtx(export: Export) -> tuple[dict, dict]:
    """(push/pop ranges as operators, start/end ranges)."""
    found = export.read("NVTX_EVENTS", "start", "end", "eventType", "globalTid", "textId")
    names = export.text(found["textId"])
    if "NVTX_EVENTS" in export.tables:  # the text is in the row or among the strings
        rows = export.rows("NVTX_EVENTS", "text")
        known = {value: code for code, value in enumerate(names.values)}
        own = np.array(
            [-1 if text is None else known.setdefault(str(text), len(known)) for (text,) in rows], np.int32
        )
        names = Coded(np.where(own >= 0, own, names.codes).astype(np.int32), list(known))
    whole = found["end"] != ABSENT

    def pick(kind: int) -> dict:
        rows = np.flatnonzero(whole & (found["eventType"] == kind))
        part = {c: v[rows] for c, v in found.items()}
        return _span(export, part, names[rows], "nvtx", *_thread(part["globalTid"]))

    operators = pick(_PUSH_POP)
    none = np.full(len(operators["ts_ns"]), -1, np.int32)
    operators |= {c: Coded(none, []) for c in ("shapes", "types", "hierarchy")}
    operators["sequence"] = np.full(len(none), ABSENT, np.int64)
    return operators, pick(_START_END)


def _others(export: Export) -> list[dict]:
    found = export.read(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "start", "end", "deviceId", "streamId", "syncType"
    )
    kinds, codes = np.unique(found["syncType"], return_inverse=True)
    names = Coded(
        codes.reshape(-1).astype(np.int32), [_SYNC_KINDS.get(k, f"sync type {k}") for k in kinds.tolist()]
    )
    lane = found["deviceId"] * 4096 + found["streamId"]
    parts = [_span(export, found, names, "sync", lane, found["deviceId"], found["streamId"])]
    found = export.read(_GRAPHS, "start", "end", "deviceId", "streamId", "graphId")
    lane = found["deviceId"] * 4096 + found["streamId"]
    names = Coded(np.zeros(len(lane), np.int32), ["CUDA graph as a whole"])
    parts.append(_span(export, found, names, "graph", lane, found["deviceId"], found["streamId"]))
    for table, cat in (("OSRT_API", "osrt"), ("PROFILER_OVERHEAD", "overhead")):
        found = export.read(table, "start", "end", "globalTid", "nameId")
        parts.append(_span(export, found, export.text(found["nameId"]), cat, *_thread(found["globalTid"])))
    return parts


def _memory(export: Export) -> dict:
    """Allocations (+) and releases (−) of device memory, where nsys recorded them."""
    found = export.read(
        "CUDA_GPU_MEMORY_USAGE_EVENTS", "start", "memoryOperationType", "bytes", "address", "deviceId"
    )
    order = np.argsort(found["start"], kind="stable")
    size = np.where(found["memoryOperationType"] == 1, -found["bytes"], found["bytes"])[order]
    none = np.full(len(order), ABSENT, np.int64)
    row = {
        "ts_ns": found["start"][order],
        "addr": found["address"][order],
        "bytes": size,
        "allocated": np.cumsum(size),
    }
    return row | {
        "reserved": none,
        "device_type": np.ones(len(order), np.int64),
        "device_id": found["deviceId"][order],
    }


def _scope(tables: dict[str, dict]) -> None:
    """Correlation ids are counted per process: with several, (process, id) pairs are numbered again."""
    parts = [tables[name] for name in ("kernels", "copies", "launches")]
    process = np.concatenate([t.pop("process") for t in parts])
    if len(np.unique(process)) > 1:
        ids = np.concatenate([t["correlation"] for t in parts])
        _, codes = np.unique(same([process, ids]), return_inverse=True)
        codes = np.where(ids == ABSENT, ABSENT, codes.reshape(-1))
        for t, part in zip(parts, np.split(codes, np.cumsum([len(t["ts_ns"]) for t in parts])[:-1])):
            t["correlation"] = part
