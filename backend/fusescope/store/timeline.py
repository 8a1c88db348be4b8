"""A profile's timeline in as many bins as a screen has columns, the tree of its time breakdown, and
what its devices did as columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fusescope.store import profile
from fusescope.store.bounded import parquet
from fusescope.store.index import database

FEW = 2000
"""Events in view up to which each is returned on its own."""
_LEVELS = ("module", "operator_name", "name")


@dataclass(frozen=True)
class Events:
    """The events of one lane by start: times in ns, ``codes`` into ``names`` (-1 = no name); ``reach``: the
    latest end so far."""

    starts: np.ndarray
    ends: np.ndarray
    reach: np.ndarray
    codes: np.ndarray
    names: list[str]

    def name(self, row: int) -> str | None:
        return None if self.codes[row] < 0 else self.names[self.codes[row]]


def lanes(run: Path) -> dict[str, dict]:
    """Rows of the timeline, devices first: {"GPU 0 stream 7": {…}, "CPU thread 4242, depth 0": {…}}."""
    found: dict[str, dict] = {}
    for table in ("kernels", "copies"):
        for device, stream in distinct(run, table, "device", "stream"):
            entry = found.setdefault(
                f"GPU {device} stream {stream}", {"device": device, "stream": stream, "tables": []}
            )
            entry["tables"].append(table)
    threads = distinct(run, "operators", "pid", "tid", "depth")
    several = len({pid for pid, _, _ in threads}) > 1
    for pid, tid, depth in threads:
        found[f"CPU thread {f'{pid}/' if several else ''}{tid}, depth {depth}"] = {
            "pid": pid,
            "tid": tid,
            "depth": depth,
            "tables": ["operators"],
        }
    return found


def distinct(run: Path, table: str, *columns: str) -> list[tuple]:
    """The combinations of values there are in some columns, sorted; none where the table is not there."""
    if table not in profile.names(run):
        return []
    file = str(profile.file(run, table))
    with database.connect(file) as connection:
        found = connection.execute(
            f"SELECT DISTINCT {', '.join(columns)} FROM read_parquet($file)", {"file": file}
        ).fetchall()
    rows = [dict(zip(columns, row)) for row in found]
    return sorted(
        (tuple(row[c] for c in columns) for row in rows), key=lambda row: [(v is None, v) for v in row]
    )


def events(run: Path, lane: dict) -> Events:
    """All events of a lane (a value of ``lanes``), read with a filter, so that the rest of a large table is
    not built."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    def equal(column: str, value):
        return pc.field(column).is_null() if value is None else pc.field(column) == value

    keys = ("device", "stream") if "device" in lane else ("pid", "tid", "depth")
    wanted = equal(keys[0], lane[keys[0]])
    for key in keys[1:]:
        wanted &= equal(key, lane[key])
    parts = []
    for table in lane["tables"]:
        file = profile.file(run, table)
        with parquet.clear(file):
            parts.append(pq.read_table(file, columns=["ts_ns", "dur_ns", "name"], filters=wanted))
    whole = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    names = whole["name"].chunk(0) if whole.num_rows else pa.array([], pa.string()).dictionary_encode()
    names = names if pa.types.is_dictionary(names.type) else names.dictionary_encode()
    starts, lengths = (whole[c].to_numpy() for c in ("ts_ns", "dur_ns"))
    codes = names.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    if (np.diff(starts) < 0).any():
        order = np.argsort(starts, kind="stable")
        starts, lengths, codes = starts[order], lengths[order], codes[order]
    ends = starts + lengths
    reach = np.maximum.accumulate(ends) if len(ends) else ends
    return Events(starts, ends, reach, codes, names.dictionary.to_pylist())


def matches(lane: Events, text: str) -> tuple[np.ndarray, np.ndarray]:
    """(starts, ends) in ns of the events whose name holds the text, whatever its case, by start."""
    wanted = [n for n, name in enumerate(lane.names) if name and text.lower() in name.lower()]
    there = np.isin(lane.codes, np.array(wanted, np.int32))
    return lane.starts[there], lane.ends[there]


def view(
    run: Path,
    lane: dict,
    begin_ns: int | None = None,
    end_ns: int | None = None,
    bins: int = 800,
    few: int = FEW,
) -> dict:
    """``window`` over a lane that is read for the purpose."""
    return window(events(run, lane), begin_ns, end_ns, bins, few)


def window(
    lane: Events, begin_ns: int | None = None, end_ns: int | None = None, bins: int = 800, few: int = FEW
) -> dict:
    """What of a lane is between two times: {"begin_ns", "end_ns", "count", "events", "bins"}.

    count: events in view; events: [{"ts_ns", "dur_ns", "name"}], each by itself where there are at most
    ``few``, else None. bins: {"busy": share of each bin (0 … 1) in which something ran, "count": events that
    begin in it, "name": the longest of those}. ValueError for fewer than one bin or an empty span.
    """
    if bins < 1:
        raise ValueError(f"a timeline has at least 1 bin, not {bins}")
    there = len(lane.starts)
    begin = int(begin_ns if begin_ns is not None else lane.starts[0] if there else 0)
    end = int(end_ns if end_ns is not None else lane.reach[-1] if there else begin + 1)
    if end <= begin:
        raise ValueError(f"a timeline ends after it begins, not at {end} after {begin}")
    # nothing before ``first`` reaches into the view, nothing from ``last`` on begins in it
    first, last = np.searchsorted(lane.reach, begin, "right"), np.searchsorted(lane.starts, end, "left")
    rows = first + np.flatnonzero(lane.ends[first:last] > begin)
    starts, ends, codes = lane.starts[rows], lane.ends[rows], lane.codes[rows]
    edges = begin + np.arange(bins + 1, dtype=np.int64) * (end - begin) // bins
    found = _bins(starts, ends, codes, edges)
    found["name"] = [None if c < 0 else lane.names[c] for c in found["name"]]
    single = (
        [
            {"ts_ns": s, "dur_ns": e - s, "name": None if c < 0 else lane.names[c]}
            for s, e, c in zip(starts.tolist(), ends.tolist(), codes.tolist())
        ]
        if len(rows) <= few
        else None
    )
    return {"begin_ns": begin, "end_ns": end, "count": len(rows), "events": single, "bins": found}


def tree(
    run: Path, by: tuple[str, ...] = _LEVELS, table: str = "kernels", time: str = "dur_ns"
) -> list[dict]:
    """Where the device's time went, module → operator → kernel: [{"path": (names,), "ns", "calls"}], one a
    path, longest first.

    by: columns of ``table``; time: its column of ns (of a trace without a GPU, self_ns of its operators).
    What has no module or operator stands under "(no module)", "(no operator)". For flame graphs and
    sunbursts.
    """
    missing = {"module": "(no module)", "operator_name": "(no operator)"}
    known = profile.columns(run, table)
    if unknown := [c for c in (*by, time) if c not in known]:
        raise ValueError(f"{table} have {', '.join(known)}, not {', '.join(unknown)}")
    chosen = ", ".join(f"coalesce({c}, '{missing.get(c, '(no name)')}')" for c in by)
    file = str(profile.file(run, table))
    with database.connect(file) as connection:
        found = connection.execute(
            f"SELECT {chosen}, sum({time})::BIGINT AS ns, count(*) AS calls FROM read_parquet($file) "
            f"GROUP BY ALL ORDER BY ns DESC, {', '.join(str(n + 1) for n in range(len(by)))}",
            {"file": file},
        ).fetchall()
    return [{"path": tuple(row[:-2]), "ns": row[-2], "calls": row[-1]} for row in found]


def series(
    run: Path, table: str, column: str, only: dict | None = None, points: int = 2000
) -> tuple[list[int], list[int]]:
    """(times in ns, largest value of the column until the next) of a table over time, in at most so many
    points.

    only: column → value that rows must have. RunError where the table is not there, ValueError for a column
    it does not have.
    """
    known = profile.columns(run, table)
    if wrong := [c for c in (column, *(only or {})) if c not in known]:
        raise ValueError(f"{table} has {', '.join(known)}, not {', '.join(wrong)}")
    where = " AND ".join(
        [f'"{column}" IS NOT NULL', "ts_ns IS NOT NULL", *(f'"{c}" = ${c}' for c in only or {})]
    )
    source = f"read_parquet($file) WHERE {where}"
    values = {"file": str(profile.file(run, table))} | (only or {})
    with database.connect(values["file"]) as connection:
        rows = connection.execute(
            f'SELECT min(ts_ns), max("{column}") FROM '
            f'(SELECT ts_ns, "{column}", ntile({int(points)}) OVER (ORDER BY ts_ns) AS part '
            f"FROM {source}) GROUP BY part ORDER BY part",
            values,
        ).fetchall()
    return [r[0] for r in rows], [r[1] for r in rows]


def _bins(starts: np.ndarray, ends: np.ndarray, codes: np.ndarray, edges: np.ndarray) -> dict:
    width = np.diff(edges)
    count = len(width)
    busy = np.zeros(count)
    longest = np.full(count, -1, np.int64)
    which = np.clip(np.searchsorted(edges, starts, "right") - 1, 0, count - 1)
    if len(starts):
        reach = np.maximum.accumulate(ends)
        first = np.concatenate(
            [[True], starts[1:] > reach[:-1]]
        )  # where the union of all events has a gap before
        begin, end = starts[first], reach[np.concatenate([np.flatnonzero(first)[1:] - 1, [len(starts) - 1]])]
        # busy time up to a moment, in floats relative to the first edge, which keep whole ns for a hundred
        # days
        moments = np.column_stack([begin, end]).reshape(-1) - edges[0]
        done = np.column_stack(
            [np.concatenate([[0], np.cumsum(end - begin)[:-1]]), np.cumsum(end - begin)]
        ).reshape(-1)
        busy = np.diff(
            np.interp((edges - edges[0]).astype(float), moments.astype(float), done.astype(float))
        ) / np.maximum(width, 1)
        # the longest of each bin: bins are runs of rows, since rows come by start
        fresh = np.flatnonzero(np.diff(which, prepend=-1))
        peaks = np.maximum.reduceat(ends - starts, fresh)
        rows = np.flatnonzero(ends - starts == np.repeat(peaks, np.diff(fresh, append=len(which))))
        longest[which[rows]] = codes[rows]
    return {
        "busy": np.clip(busy, 0, 1).tolist(),
        "count": np.bincount(which, minlength=count).tolist(),
        "name": longest.tolist(),
    }


def device_activities(run: Path) -> tuple[dict, dict] | None:
    """The columns of ``analysis.profile.device_time.Activities`` and ``Gaps``; None where the run has no
    kernels and copies with the gaps between them."""
    if not {"kernels", "copies", "gaps"} <= set(profile.names(run)):
        return None
    parts, known = [], []
    for name in ("kernels", "copies"):
        wanted = ["ts_ns", "dur_ns", "device", "stream", "step", "name", "collective"]
        there = [c for c in wanted if c in profile.columns(run, name)]
        if not {*wanted[:-1]} <= {*there}:  # of a file from elsewhere
            return None
        table = profile.arrow(run, name, there)
        places, texts = _places(table["name"])
        found = {c: _integers(table[c]) for c in ("ts_ns", "dur_ns", "device", "stream", "step")}
        told = "collective" in table.column_names
        found["told"] = (table["collective"] if told else table["name"]).is_valid().to_numpy() & told
        found["copy"] = np.full(table.num_rows, name == "copies")
        found["name"] = places + (places >= 0) * len(known)
        known += texts
        parts.append(found)
    joined = {column: np.concatenate([part[column] for part in parts]) for column in parts[0]}
    begin = joined.pop("ts_ns")
    joined |= {"begin": begin, "end": begin + joined.pop("dur_ns"), "names": known}
    empty = profile.arrow(run, "gaps", ["dur_ns", "step", "cause"])
    cause, causes = _places(empty["cause"])
    gaps = {
        "length": _integers(empty["dur_ns"]),
        "step": _integers(empty["step"]),
        "cause": cause,
        "causes": causes,
    }
    return joined, gaps


def _integers(column):
    """An integer column as numpy, the smallest int64 where there is none."""
    return column.fill_null(np.iinfo(np.int64).min).to_numpy()


def _places(column):
    """(place of each text in the list, -1 where there is none; the list)."""
    one = column.combine_chunks().dictionary_encode()
    return one.indices.fill_null(-1).to_numpy().astype(np.int64), one.dictionary.to_pylist()
