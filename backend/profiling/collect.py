"""Sorting the events of a Chrome trace into tables, run by run: kernels, operators, launches, copies, ranges, memory, counters.

Categories are those of torch.profiler of any age (Kernel, Operator, Runtime … before 1.11; none at all in the autograd
profiler's traces, where the process is called "CPU functions" or "CUDA functions"). What fits nowhere else is a range.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from decimal import Decimal
from types import SimpleNamespace

import numpy as np

from backend.profiling import exact
from backend.profiling.events import ARGS
from backend.profiling.table import ABSENT, Coded, Texts, coded, real, triples, whole

TABLES = ("kernels", "operators", "launches", "copies", "ranges")
_TABLE_OF = {
    "kernel": "kernels",
    "cpu_op": "operators",
    "operator": "operators",
    "runtime": "launches",
    "cuda_runtime": "launches",
    "cuda_driver": "launches",
    "hip_runtime": "launches",
    "xpu_runtime": "launches",
    "xpu_driver": "launches",
    "mtia_runtime": "launches",
    "privateuse1_runtime": "launches",
    "privateuse1_driver": "launches",
    "gpu_memcpy": "copies",
    "gpu_memset": "copies",
    "memcpy": "copies",
    "memset": "copies",
}
_TABLE_OF_PROCESS = {"CPU functions": "operators", "CUDA functions": "kernels"}
_NOTHING = SimpleNamespace(**dict.fromkeys(ARGS) | {"shapes": b"", "types": b""})


class Collector:
    """``add`` runs of events, then ``finish``: the tables, each a dict of columns; times in absolute ns."""

    def __init__(self):
        self.phases: Counter = Counter()  # events by phase, all of them
        self.malformed = 0  # complete events without a time
        self._columns: dict[str, dict[str, list]] = {t: defaultdict(list) for t in (*TABLES, "memory", "counters")}
        self._texts: dict[tuple[str, str], Texts] = defaultdict(Texts)
        self._lanes = Texts()
        self._pairs: list = []  # B and E events, in the order of the file
        self._count = 0

    def add(self, events: list) -> None:
        """Take one run of events. ValueError for times that are out of range."""
        groups: dict[str, list] = defaultdict(list)
        known: dict = {}
        for e in events:
            if e.ph == "X":
                key = e.cat if e.cat is not None else (None, e.pid)
                table = known.get(key)
                if table is None:
                    table = known[key] = _table_of(e)
                groups[table].append(e)
            else:
                groups[e.ph].append(e)
        self._count += len(events)
        for key, found in groups.items():
            self.phases["X" if key in TABLES else str(key)] += len(found)
            if key in TABLES:
                self._spans(key, found)
                self._counters([e for e in found if e.counts] if key == "ranges" else [])
            elif key in ("B", "E"):
                self._pairs += found
            elif key in ("i", "I", "R"):
                self._memory([e for e in found if e.name == "[memory]" and e.args is not None])
            elif key == "C":
                self._counters(found)

    def finish(self, metadata: dict) -> dict[str, dict]:
        """The tables by name. ValueError where the base time is no whole number."""
        base = metadata.get("baseTimeNanoseconds", 0)
        if isinstance(base, bool) or not isinstance(base, int) or not 0 <= base < 1 << 62:
            raise ValueError(f"baseTimeNanoseconds is a whole number of nanoseconds, not {str(base)[:40]!r}")
        for table, found in self._paired().items():
            self._spans(table, found)
        lanes = list(self._lanes)
        pids, tids = (coded([None if lane[i] is None else str(lane[i]) for lane in lanes]) for i in (0, 1))
        tables = {}
        for name, columns in self._columns.items():
            done: dict = {}
            for column, parts in columns.items():
                array = np.concatenate(parts)
                if column == "ts_ns":
                    array += base
                texts = self._texts.get((name, column))
                done[column] = array if texts is None else Coded(array, texts.values())
            if done and "lane" in done:
                done["pid"], done["tid"] = pids[done["lane"]], tids[done["lane"]]
            tables[name] = done or empty(name)
        return tables

    def _spans(self, table: str, events: list) -> None:
        starts = exact.column([e.ts for e in events], absent=ABSENT)
        if (starts == ABSENT).any():
            self.malformed += int((starts == ABSENT).sum())
            events = [e for e, start in zip(events, starts) if start != ABSENT]
            starts = starts[starts != ABSENT]
        args = [e.args or _NOTHING for e in events]
        put = self._columns[table]
        put["ts_ns"].append(starts)
        put["dur_ns"].append(np.maximum(exact.column([e.dur for e in events], absent=0), 0))
        self._coded(table, "name", [e.name for e in events])
        self._coded(table, "cat", [e.cat for e in events])
        put["lane"].append(np.array([self._lanes[e.pid, e.tid] for e in events], np.int32))
        put["external_id"].append(whole([a.external_id if a.external_id is not None else a.external_old for a in args]))
        if table in ("kernels", "launches", "copies"):
            put["correlation"].append(whole([a.correlation for a in args]))
        if table in ("kernels", "copies"):
            devices = [a.device if a.device is not None else e.pid for a, e in zip(args, events)]
            put["device"].append(whole(devices))
            put["stream"].append(whole([a.stream if a.stream is not None else e.tid for a, e in zip(args, events)]))
            put["graph"].append(whole([a.graph for a in args]))
            put["graph_node"].append(whole([a.node for a in args]))
        if table in ("kernels", "launches"):
            put["grid"].append(triples([a.grid for a in args]))
            put["block"].append(triples([a.block for a in args]))
            put["shared_bytes"].append(whole([a.shared for a in args]))
        if table == "kernels":
            put["registers"].append(whole([a.registers for a in args]))
            put["reported_occupancy"].append(real([a.estimate for a in args]) / 100)
        elif table == "copies":
            put["bytes"].append(whole([a.bytes_ if a.bytes_ is not None else a.size for a in args]))
            self._coded(table, "kind", [_direction(e.name, a.kind) for e, a in zip(events, args)])
        elif table == "operators":
            self._coded(table, "shapes", [bytes(a.shapes) for a in args])
            self._coded(table, "types", [bytes(a.types) for a in args])
            put["sequence"].append(whole([a.sequence for a in args]))
            self._coded(table, "hierarchy", [a.hierarchy if isinstance(a.hierarchy, str) else None for a in args])

    def _coded(self, table: str, column: str, values: list) -> None:
        self._columns[table][column].append(self._texts[table, column].codes(values))

    def _memory(self, events: list) -> None:
        if not events:
            return
        put, args = self._columns["memory"], [e.args for e in events]
        put["ts_ns"].append(exact.column([e.ts for e in events]))
        for column in ("addr", "mem_bytes", "allocated", "reserved", "device_type", "device_id"):
            put[column.removeprefix("mem_")].append(whole([getattr(a, column) for a in args]))

    def _counters(self, events: list) -> None:
        """One row a number: a counter event has one for each of its series, a range one for each metric."""
        rows = [
            (e, series, value)
            for e in events
            if isinstance(e.counts, dict)
            for series, value in e.counts.items()
            if type(value) in (int, float)
        ]
        if not rows:
            return
        put = self._columns["counters"]
        put["ts_ns"].append(exact.column([e.ts for e, _, _ in rows]))
        self._coded("counters", "name", [e.name for e, _, _ in rows])
        self._coded("counters", "series", [series for _, series, _ in rows])
        put["value"].append(np.array([float(value) for _, _, value in rows]))

    def _paired(self) -> dict[str, list]:
        """Begin and end events as complete ones: the last that began on a lane ends first. Unmatched ones are malformed."""
        found: dict[str, list] = defaultdict(list)
        stacks: dict[tuple, list] = defaultdict(list)
        timed = [(exact.nanoseconds(e.ts), e) for e in self._pairs]
        self.malformed += sum(ts is None for ts, _ in timed)
        for ts, e in sorted(((ts, e) for ts, e in timed if ts is not None), key=lambda pair: pair[0]):
            stack = stacks[e.pid, e.tid]
            if e.ph == "B":
                stack.append((ts, e))
            elif not stack:
                self.malformed += 1
            else:
                began, first = stack.pop()
                first.dur = Decimal(ts - began) / 1000
                found[_table_of(first)].append(first)
        self.malformed += sum(map(len, stacks.values()))
        self._pairs = []
        return found


def _table_of(e) -> str:
    if e.cat is None:
        return _TABLE_OF_PROCESS.get(str(e.pid), "ranges")
    return _TABLE_OF.get(str(e.cat).lower(), "ranges")


def _direction(name, kind) -> str | None:
    """HtoD, DtoH, DtoD, PtoP, HtoH or "memset", from the kind that AMD traces give or from the name."""
    if isinstance(kind, str) and kind[1:3] == "to":
        return kind
    text = str(name)
    if text.lower().startswith("memset"):
        return "memset"
    return next((d for d in ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH") if d in text), None)


def empty(name: str) -> dict:
    """The columns of a table without rows, as they would be with some."""
    none, text = np.zeros(0, np.int64), Coded(np.zeros(0, np.int32), [])
    if name == "memory":
        return {c: none for c in ("ts_ns", "addr", "bytes", "allocated", "reserved", "device_type", "device_id")}
    if name == "counters":
        return {"ts_ns": none, "name": text, "series": text, "value": np.zeros(0)}
    columns: dict = {"ts_ns": none, "dur_ns": none, "name": text, "cat": text, "lane": np.zeros(0, np.int32)}
    columns |= {"external_id": none, "pid": text, "tid": text}
    if name in ("kernels", "launches", "copies"):
        columns["correlation"] = none
    if name in ("kernels", "copies"):
        columns |= {c: none for c in ("device", "stream", "graph", "graph_node")}
    if name in ("kernels", "launches"):
        columns |= {"grid": np.zeros((0, 3), np.int64), "block": np.zeros((0, 3), np.int64), "shared_bytes": none}
    if name == "kernels":
        columns |= {"registers": none, "reported_occupancy": np.zeros(0)}
    if name == "copies":
        columns |= {"bytes": none, "kind": text}
    if name == "operators":
        columns |= {"shapes": text, "types": text, "sequence": none, "hierarchy": text}
    return columns
