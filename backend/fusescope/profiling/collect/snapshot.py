"""Import of torch's memory snapshot (torch.cuda.memory._dump_snapshot). The pickle is a stranger's: nothing
in it is executed.

memory: one row per event of the allocator's history; segments: what it held at the end.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fusescope.profiling import table
from fusescope.profiling.table import ABSENT, coded, whole

MAX_BYTES = 2 << 30
_SIGN = {
    "alloc": (1, 0),
    "free_completed": (-1, 0),
    "free": (-1, 0),
    "segment_alloc": (0, 1),
    "segment_free": (0, -1),
    "segment_map": (0, 1),
    "segment_unmap": (0, -1),
}


class _PlainOnly(pickle.Unpickler):
    """Reads dicts, lists, texts and numbers; refuses every name of code."""

    def find_class(self, module: str, name: str):
        raise pickle.UnpicklingError(f"it names {module}.{name}, and a snapshot holds plain values only")


def load(
    path: Path,
    target: Callable[[str], Path],
    progress: Callable[[float, str], None] = lambda share, text: None,
) -> dict:
    """Write the tables and give the summary. ValueError: one sentence on why the file is no snapshot."""
    path = Path(path)
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path.name} is larger than {MAX_BYTES >> 30} GiB; record fewer allocations")
    progress(0.1, "reading the snapshot")
    try:
        data = _PlainOnly(io.BytesIO(path.read_bytes())).load()
    except RecursionError:
        raise ValueError(f"{path.name} is nested too deeply for a memory snapshot") from None
    except Exception as error:  # a damaged pickle raises almost anything
        raise ValueError(
            f"{path.name} is no memory snapshot, or is damaged ({' '.join(str(error).split())[:200]})"
        ) from None
    if (
        not isinstance(data, dict)
        or not isinstance(data.get("segments"), list)
        or not isinstance(data.get("device_traces", []), list)
    ):
        raise ValueError(f"{path.name} is no memory snapshot: it has no list of segments")
    progress(0.5, "sorting its events")
    events = [
        (device, e)
        for device, trace in enumerate(data.get("device_traces", []))
        if isinstance(trace, list)
        for e in trace
    ]
    events = [(device, e) for device, e in events if isinstance(e, dict)]
    segments = [s for s in data["segments"] if isinstance(s, dict)]
    memory, pools = _events(events), _segments(segments)
    table.write(target("memory.parquet"), memory)
    table.write(target("segments.parquet"), pools)
    peak = int(memory["allocated"].max()) if len(events) else None
    summary = {
        "source": "snapshot",
        "schema": 1,
        "file": path.name,
        "file_bytes": path.stat().st_size,
        "gpus": [],
        "rows": {"memory": len(events), "segments": len(segments)},
        "totals": {},
        "notes": []
        if events
        else [
            "the snapshot holds no history: call torch.cuda.memory._record_memory_history() before the work"
        ],
        "memory": {
            "reserved_bytes": int(np.where(pools["bytes"] == ABSENT, 0, pools["bytes"]).sum()),
            "allocated_bytes": int(np.where(pools["allocated"] == ABSENT, 0, pools["allocated"]).sum()),
            "history_peak_bytes": peak,
        },
    }
    target("summary.json").write_text(json.dumps(summary, indent=1))
    return summary


def _events(events: list[tuple[int, dict]]) -> dict:
    """As the memory table of a trace: bytes is signed; allocated and reserved are running sums from the
    history's start.

    "free_requested" frees nothing yet; of "free" and "free_completed" a history holds one kind only.
    """
    actions = [str(e.get("action")) for _, e in events]
    size = whole([e.get("size") for _, e in events])
    size = np.where(size == ABSENT, 0, size)
    signs = np.array([_SIGN.get(a, (0, 0)) for a in actions], np.int64).reshape(-1, 2)
    ts = whole([e.get("time_us") for _, e in events])
    devices = np.array([d for d, _ in events], np.int64)
    allocated, reserved = np.zeros(len(events), np.int64), np.zeros(len(events), np.int64)
    for device in np.unique(devices):
        mine = devices == device
        allocated[mine], reserved[mine] = (np.cumsum((size * signs[:, i])[mine]) for i in (0, 1))
    return {
        "ts_ns": np.where(ts == ABSENT, ABSENT, ts * 1000),
        "addr": whole([e.get("addr") for _, e in events]),
        "bytes": size * signs.sum(axis=1),
        "allocated": allocated,
        "reserved": reserved,
        "device_type": np.ones(len(events), np.int64),
        "device_id": devices,
        "action": coded(actions),
        "where": coded([_frame(e) for _, e in events]),
    }


def _segments(segments: list[dict]) -> dict:
    return {
        "device": whole([s.get("device") for s in segments]),
        "address": whole([s.get("address") for s in segments]),
        "bytes": whole([s.get("total_size") for s in segments]),
        "allocated": whole([s.get("allocated_size") for s in segments]),
        "active": whole([s.get("active_size") for s in segments]),
        "stream": whole([s.get("stream") for s in segments]),
        "blocks": np.array(
            [len(s["blocks"]) if isinstance(s.get("blocks"), list) else 0 for s in segments], np.int64
        ),
    }


def _frame(event: dict) -> str | None:
    """The innermost Python frame of an allocation, "file.py:12 function"."""
    frames = event.get("frames")
    for f in frames if isinstance(frames, list) else ():
        if isinstance(f, dict) and str(f.get("filename", "")).endswith(".py"):
            return f"{Path(str(f['filename'])).name}:{f.get('line')} {f.get('name')}"
    return None
