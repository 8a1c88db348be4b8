"""Sorting the events of a Chrome trace into tables, run by run: kernels, operators, launches, copies, ranges,
memory, counters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from decimal import Decimal
from types import SimpleNamespace

import numpy as np

from fusescope.profiling.chrome import collectives, exact
from fusescope.profiling.chrome.categories import direction, table_of, table_of_category
from fusescope.profiling.chrome.events import ARGS, Run, event, plain
from fusescope.profiling.columns import TABLES, empty
from fusescope.profiling.table import ABSENT, Coded, Texts, distinct, real, triples, whole

_GROUP_OF = {
    "X": "complete",
    "B": "pairs",
    "E": "pairs",
    "C": "counters",
    "i": "memory",
    "I": "memory",
    "R": "memory",
    "M": "names",
}
_GROUPS = [
    "",
    *TABLES,
    "pairs",
    "counters",
    "memory",
    "names",
    "complete",
]  # "": not taken; "complete": into one of the tables
_COMPLETE = _GROUPS.index("complete")
_NOTHING = SimpleNamespace(**dict.fromkeys(ARGS) | {"shapes": b"", "types": b""})


class Collector:
    """``add`` runs of events, then ``finish``: the tables, each a dict of columns; times in absolute ns."""

    def __init__(self):
        self.phases: Counter = Counter()  # events by phase, all of them
        self.malformed = 0  # complete events without a time or a length, or with a negative one
        self.names: dict[tuple, str] = {}  # (pid,) → process, (pid, tid) → thread
        self._columns: dict[str, dict[str, list]] = {
            t: defaultdict(list) for t in (*TABLES, "memory", "counters")
        }
        self._texts: dict[tuple[str, str], Texts] = defaultdict(Texts)
        self._pids, self._tids = Texts(), Texts()
        self._pairs: list[tuple] = []  # (ts, event) of B and E, in the order of the file

    def add(self, run: Run) -> None:
        """Take one run of events. ValueError for times that are out of range."""
        events, groups = run.events, self._groups(run.events)
        counting = []
        for number, name in enumerate(_GROUPS):
            rows = np.flatnonzero(groups == number)
            if not len(rows) or not name:
                continue
            found = list(map(events.__getitem__, rows.tolist()))
            if name in TABLES:
                self._spans(name, found, run.ts[rows], run.dur[rows])
                if name == "ranges":
                    counting += rows[[e.cat == "cuda_profiler_range" for e in found]].tolist()
            elif name == "pairs":
                self._pairs += zip(run.ts[rows].tolist(), found)
            elif name == "names":
                self._names(run, rows.tolist())
            elif name == "counters":
                counting = rows.tolist() + counting
            else:
                self._memory(found, run.ts[rows])
        if counting:
            self._counters(run, counting)

    def _groups(self, events: list) -> np.ndarray:
        """What becomes of each event, as its place in _GROUPS; the phases are counted."""
        phases, which = distinct([e.ph for e in events])
        for phase, count in zip(phases, np.bincount(which, minlength=len(phases)).tolist()):
            self.phases[str(phase)] += count
        groups = np.array([_GROUPS.index(_GROUP_OF.get(phase, "")) for phase in phases])[which]
        rows = np.flatnonzero(groups == _COMPLETE)
        found = list(map(events.__getitem__, rows.tolist()))
        categories, which = distinct([e.cat for e in found])
        groups[rows] = np.array([_GROUPS.index(table_of_category(c)) for c in categories])[which]
        for row in rows[which == categories.index(None)].tolist() if None in categories else ():
            groups[row] = _GROUPS.index(table_of(events[row]))
        return groups

    def finish(self, metadata: dict) -> dict[str, dict]:
        """The tables by name. ValueError where the base time is no whole number."""
        base = metadata.get("baseTimeNanoseconds", 0)
        if isinstance(base, bool) or not isinstance(base, int) or not 0 <= base < 1 << 62:
            raise ValueError(f"baseTimeNanoseconds is a whole number of nanoseconds, not {str(base)[:40]!r}")
        for table, (events, ts, dur) in self._paired().items():
            self._spans(table, events, np.array(ts, np.int64), np.array(dur, np.int64))
        tables = {}
        for name, columns in self._columns.items():
            done: dict = {}
            for column, parts in columns.items():
                array = np.concatenate(parts)
                if column == "ts_ns":
                    array += base
                texts = self._texts.get((name, column))
                done[column] = array if texts is None else Coded(array, texts.values())
            if done and "pid" in done:
                done["lane"] = done["pid"].astype(np.int64) * (len(self._tids) + 1) + done["tid"]
                done["pid"], done["tid"] = (
                    Coded(done["pid"], self._pids.values()),
                    Coded(done["tid"], self._tids.values()),
                )
            tables[name] = done or empty(name)
        return tables

    def packed(self) -> dict:
        """What was collected, for ``join`` of a collector in another process: numbers, texts and arrays
        alone."""
        return {
            "phases": dict(self.phases),
            "malformed": self.malformed,
            "names": self.names,
            "columns": {
                t: {c: np.concatenate(parts) for c, parts in columns.items()}
                for t, columns in self._columns.items()
            },
            "texts": {key: list(texts) for key, texts in self._texts.items()},
            "pids": list(self._pids),
            "tids": list(self._tids),
            "pairs": [(ts, plain(e)) for ts, e in self._pairs],
        }

    def join(self, packed: dict) -> None:
        """Take what another collector found in the events that follow this one's."""
        self.phases.update(packed["phases"])
        self.malformed += packed["malformed"]
        self.names |= packed["names"]
        for table, columns in packed["columns"].items():
            for column, values in columns.items():
                there = {"pid": packed["pids"], "tid": packed["tids"]}.get(column) or packed["texts"].get(
                    (table, column)
                )
                if there is not None:
                    texts = {"pid": self._pids, "tid": self._tids}.get(column)
                    texts = self._texts[table, column] if texts is None else texts
                    values = np.array([texts[text] for text in there] + [-1], np.int32)[values]
                self._columns[table][column].append(values)
        self._pairs += [(ts, event(*fields)) for ts, fields in packed["pairs"]]

    def _spans(self, table: str, events: list, starts: np.ndarray, lengths: np.ndarray) -> None:
        there = (starts != ABSENT) & ((lengths >= 0) | (lengths == exact.BEYOND))
        if not there.all():
            self.malformed += int((~there).sum())
            events, starts, lengths = [e for e, t in zip(events, there) if t], starts[there], lengths[there]
        if (starts == exact.BEYOND).any() or (lengths == exact.BEYOND).any():
            raise ValueError("one of its times is out of range: more than 146 years")
        args = [e.args or _NOTHING for e in events]
        put = self._columns[table]
        put["ts_ns"].append(starts)
        put["dur_ns"].append(lengths)
        self._coded(table, "name", [e.name for e in events])
        self._coded(table, "cat", [e.cat for e in events])
        pids, tids = [e.pid for e in events], [e.tid for e in events]
        put["pid"].append(self._pids.codes(pids))
        put["tid"].append(self._tids.codes(tids))
        put["external_id"].append(
            _first([a.external_id for a in args], lambda rows: [args[r].external_old for r in rows])
        )
        if table in ("kernels", "launches", "copies"):
            put["correlation"].append(whole([a.correlation for a in args]))
        if table in ("kernels", "copies"):
            put["device"].append(_first([a.device for a in args], lambda rows: [pids[r] for r in rows]))
            put["stream"].append(_first([a.stream for a in args], lambda rows: [tids[r] for r in rows]))
            put["graph"].append(whole([a.graph for a in args]))
            put["graph_node"].append(whole([a.node for a in args]))
        if table in ("kernels", "launches"):
            put["grid"].append(triples([a.grid for a in args]))
            put["block"].append(triples([a.block for a in args]))
            put["shared_bytes"].append(whole([a.shared for a in args]))
        if table == "kernels":
            put["registers"].append(whole([a.registers for a in args]))
            put["reported_occupancy"].append(real([a.estimate for a in args]) / 100)
            self._coded(table, "collective", collectives.texts(args))
        elif table == "copies":
            put["bytes"].append(_first([a.bytes_ for a in args], lambda rows: [args[r].size for r in rows]))
            self._coded(table, "kind", [direction(e.name, a.kind) for e, a in zip(events, args)])
        elif table == "operators":
            self._coded(table, "shapes", list(map(bytes, [a.shapes for a in args])))
            self._coded(table, "types", list(map(bytes, [a.types for a in args])))
            put["sequence"].append(whole([a.sequence for a in args]))
            hierarchy = [a.hierarchy for a in args]
            if not set(map(type, hierarchy)) <= {str, type(None)}:
                hierarchy = [h if isinstance(h, str) else None for h in hierarchy]
            self._coded(table, "hierarchy", hierarchy)

    def _coded(self, table: str, column: str, values: list) -> None:
        self._columns[table][column].append(self._texts[table, column].codes(values))

    def _memory(self, events: list, ts: np.ndarray) -> None:
        rows = [n for n, e in enumerate(events) if e.name == "[memory]" and e.args is not None]
        if not rows:
            return
        put, args, ts = self._columns["memory"], [events[n].args for n in rows], ts[rows]
        _sound(ts)
        put["ts_ns"].append(ts)
        for column in ("addr", "mem_bytes", "allocated", "reserved", "device_type", "device_id"):
            put[column.removeprefix("mem_")].append(whole([getattr(a, column) for a in args]))

    def _names(self, run: Run, rows: list[int]) -> None:
        """What metadata events call processes and threads."""
        known = {"process_name": 1, "thread_name": 2}
        rows = [row for row in rows if run.events[row].name in known]
        args = run.args() if rows else []
        for row in rows:
            e, name = run.events[row], args[row].get("name")
            if isinstance(name, str):
                self.names[(str(e.pid), str(e.tid))[: known[e.name]]] = name

    def _counters(self, run: Run, rows: list[int]) -> None:
        """One row per number: a counter event has one for each of its series, a range one for each metric."""
        args = run.args()
        found = [
            (row, s, v) for row in rows for s, v in args[row].items() if type(v) in (int, float, Decimal)
        ]
        if not found:
            return
        put, ts = self._columns["counters"], run.ts[[row for row, _, _ in found]]
        _sound(ts)
        put["ts_ns"].append(ts)
        self._coded("counters", "name", [run.events[row].name for row, _, _ in found])
        self._coded("counters", "series", [series for _, series, _ in found])
        put["value"].append(np.array([_float(value) for _, _, value in found]))

    def _paired(self) -> dict[str, tuple[list, list, list]]:
        """Begin and end events as complete ones, (events, starts, lengths) by table: the last that began on a
        lane ends first.

        Unmatched ones are malformed.
        """
        found: dict[str, tuple[list, list, list]] = defaultdict(lambda: ([], [], []))
        stacks: dict[tuple, list] = defaultdict(list)
        timed = [(ts, e) for ts, e in self._pairs if ts > exact.BEYOND]
        self.malformed += len(self._pairs) - len(timed)
        for ts, e in sorted(timed, key=lambda pair: pair[0]):
            stack = stacks[e.pid, e.tid]
            if e.ph == "B":
                stack.append((ts, e))
            elif not stack:
                self.malformed += 1
            else:
                began, first = stack.pop()
                for column, value in zip(found[table_of(first)], (first, began, ts - began)):
                    column.append(value)
        self.malformed += sum(map(len, stacks.values()))
        self._pairs = []
        return found


def _first(values: list, others: Callable[[list[int]], list]) -> np.ndarray:
    """A column of whole numbers; where the first choice is None, what ``others`` gives for those rows."""
    if None in values:
        rows = [n for n, v in enumerate(values) if v is None]
        for n, other in zip(rows, others(rows)):
            values[n] = other
    return whole(values)


def _sound(ts: np.ndarray) -> None:
    if (ts <= exact.BEYOND).any():
        raise ValueError("one of its times is no number of microseconds within 146 years")


def _float(value) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number with more than 308 digits
        return np.inf if value > 0 else -np.inf
