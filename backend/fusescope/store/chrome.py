"""A profile's tables as a Chrome trace, in pieces: what Perfetto opens where the file itself is no such
trace, or was not kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from fusescope.core.errors import RunError
from fusescope.store import profile
from fusescope.store.bounded import parquet

MOST = 2_000_000
"""Events up to which a trace is written; a browser opens no larger one in reasonable time."""
_TABLES = {
    "kernels": "kernel",
    "copies": "gpu_memcpy",
    "launches": "cuda_runtime",
    "operators": "cpu_op",
    "ranges": "user_annotation",
}
_ARGS = {
    "kernels": (
        "correlation",
        "device",
        "stream",
        "registers",
        "shared_bytes",
        "grid_x",
        "block_x",
        "occupancy",
        "operator_name",
        "module",
    ),
    "copies": ("correlation", "device", "stream", "bytes", "gbps"),
    "launches": ("correlation",),
    "operators": ("shapes", "module"),
    "ranges": (),
}


def events(run: Path) -> int:
    """How many events such a trace would have."""
    rows = (profile.summary(run) or {}).get("rows") or {}
    return sum(rows.get(t, 0) for t in _TABLES)


def trace(run: Path, rows: int = 1 << 14) -> Iterator[bytes]:
    """The JSON in pieces: complete events with times in µs to the ns, processes and threads as numbers with
    their names.

    RunError where the run has no tables of events, or more than MOST events.
    """
    count = events(run)
    there = [t for t in _TABLES if t in profile.names(run)]
    if not there or not count:
        raise RunError(f"{Path(run).name} holds no events to draw")
    if count > MOST:
        raise RunError(
            f"{Path(run).name} holds {count:,} events; up to {MOST:,} are written as a Chrome trace"
        )
    return _pieces(Path(run), there, rows)


def _pieces(run: Path, there: list[str], rows: int) -> Iterator[bytes]:
    import pyarrow.parquet as pq

    zero = ((profile.summary(run) or {}).get("span_ns") or [0])[0]
    yield (
        json.dumps({"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": zero})[:-1]
        + ', "traceEvents": [\n'
    ).encode()
    numbers: dict[tuple, int] = {}
    for table in there:
        known = profile.columns(run, table)
        args = [c for c in _ARGS[table] if c in known]
        on_device = "device" in known
        place = ("device", "stream") if on_device else ("pid", "tid")
        file = profile.file(run, table)
        with parquet.clear(file), pq.ParquetFile(file) as source:
            for batch in source.iter_batches(
                batch_size=rows, columns=["ts_ns", "dur_ns", "name", "cat", *place, *args]
            ):
                lines = [
                    _event(row, table, place, on_device, args, zero, numbers) for row in batch.to_pylist()
                ]
                yield ("".join(f"{line},\n" for line in lines)).encode()
    named = [
        {
            "ph": "M",
            "name": "process_name",
            "pid": number,
            "args": {"name": f"GPU {key[1]}" if key[0] else f"process {key[1]}"},
        }
        for key, number in numbers.items()
        if len(key) == 2
    ]
    yield (",\n".join(json.dumps(n) for n in named) + "\n]}\n").encode()


def _event(
    row: dict, table: str, place: tuple[str, str], on_device: bool, args: list[str], zero: int, numbers: dict
) -> str:
    process, thread = (row[c] for c in place)
    pid = _number((on_device, process), numbers)
    tid = _number((on_device, process, thread), numbers)
    start, length = row["ts_ns"] - zero, row["dur_ns"]
    known = {c: row[c] for c in args if row[c] is not None and row[c] == row[c]}
    head = {
        "ph": "X",
        "cat": row["cat"] or _TABLES[table],
        "name": row["name"] or "(no name)",
        "pid": pid,
        "tid": tid,
        "args": known,
    }
    # times are written digit by digit: a float would lose ns after a quarter of a year
    return f'{json.dumps(head)[:-1]}, "ts": {_us(start)}, "dur": {_us(length)}}}'


def _number(key: tuple, numbers: dict) -> int:
    """The process or thread's own number where it has one, else one that no other has."""
    if key not in numbers:
        own = str(key[-1])
        wanted = int(own) if own.isdecimal() and len(own) < 10 else 1_000_000_000 + len(numbers)
        taken = {n for k, n in numbers.items() if len(k) == len(key) and k[:-1] == key[:-1]} | {
            n for k, n in numbers.items() if len(k) == len(key) == 2
        }
        numbers[key] = wanted if wanted not in taken else 1_000_000_000 + len(numbers)
    return numbers[key]


def _us(ns: int) -> str:
    sign = "-" if ns < 0 else ""
    return f"{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"
