"""A profile's time line in as many bins as a screen has columns, and the tree of where the time went."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from backend.store import profile

_FEW = 2000  # events in view up to which each is given by itself
_LEVELS = ("module", "operator_name", "name")


def lanes(run: Path) -> dict[str, dict]:
    """Rows of the time line, devices first: {"GPU 0 stream 7": {…}, "thread 4242/4242, level 0": {…}}."""
    found: dict[str, dict] = {}
    for table in ("kernels", "copies"):
        for device, stream in _distinct(run, table, "device", "stream"):
            entry = found.setdefault(f"GPU {device} stream {stream}", {"device": device, "stream": stream, "tables": []})
            entry["tables"].append(table)
    for pid, tid, depth in _distinct(run, "operators", "pid", "tid", "depth"):
        found[f"thread {pid}/{tid}, level {depth}"] = {"pid": pid, "tid": tid, "depth": depth, "tables": ["operators"]}
    return found


def _distinct(run: Path, table: str, *columns: str) -> list[tuple]:
    if table not in profile.names(run):
        return []
    rows = profile.arrow(run, table, list(columns)).group_by(list(columns)).aggregate([]).to_pylist()
    return sorted((tuple(row[c] for c in columns) for row in rows), key=lambda row: [(v is None, v) for v in row])


def view(run: Path, lane: dict, begin_ns: int | None = None, end_ns: int | None = None, bins: int = 800) -> dict:
    """What of a lane (a value of ``lanes``) lies between two times: {"begin_ns", "end_ns", "events", "bins"}.

    events: [{"ts_ns", "dur_ns", "name"}], each by itself where there are few, else None. bins: {"busy": share of each bin (0 … 1)
    in which something ran, "count": events that begin in it, "name": the longest of those}. ValueError for fewer than one bin or an
    empty span.
    """
    import pandas as pd

    if bins < 1:
        raise ValueError(f"a time line has at least 1 bin, not {bins}")
    parts = [_of_lane(run, table, lane) for table in lane["tables"]]
    rows = pd.concat(parts, ignore_index=True).sort_values("ts_ns", kind="stable")
    starts = rows["ts_ns"].to_numpy(np.int64)
    ends = starts + rows["dur_ns"].to_numpy(np.int64)
    begin = int(begin_ns if begin_ns is not None else starts.min() if len(starts) else 0)
    end = int(end_ns if end_ns is not None else ends.max() if len(ends) else begin + 1)
    if end <= begin:
        raise ValueError(f"a time line ends after it begins, not at {end} after {begin}")
    there = (starts < end) & (ends > begin)
    rows, starts, ends = rows[there], starts[there], ends[there]
    names = rows["name"]
    edges = begin + np.arange(bins + 1, dtype=np.int64) * (end - begin) // bins
    few = len(starts) <= _FEW
    return {
        "begin_ns": begin,
        "end_ns": end,
        "events": [{"ts_ns": int(s), "dur_ns": int(e - s), "name": n} for s, e, n in zip(starts, ends, names.astype(object))]
        if few
        else None,
        "bins": _bins(starts, ends, names, edges),
    }


def tree(run: Path, by: tuple[str, ...] = _LEVELS) -> list[dict]:
    """Where the device's time went, module → operator → kernel: [{"path": (names,), "ns", "calls"}], one a path, longest first.

    What has no module or operator stands under "(no module)", "(no operator)". For flame graphs and sunbursts.
    """
    rows = profile.table(run, "kernels", [*by, "dur_ns"])
    for column in by:
        missing = "(no module)" if column == "module" else "(no operator)" if column == "operator_name" else "(no name)"
        rows[column] = rows[column].astype(object).where(rows[column].notna(), missing)
    sums = rows.groupby(list(by), observed=True)["dur_ns"].agg(["sum", "count"]).sort_values("sum", ascending=False)
    return [
        {"path": path if isinstance(path, tuple) else (path,), "ns": int(ns), "calls": int(calls)}
        for path, ns, calls in zip(sums.index, sums["sum"], sums["count"])
    ]


def _of_lane(run: Path, table: str, lane: dict):
    """Rows of one lane, read with a filter, so that the rest of a large table is not built."""
    import pyarrow.parquet as pq

    def equal(column: str, value):
        import pyarrow.compute as pc

        return pc.field(column).is_null() if value is None else pc.field(column) == value

    keys = ("device", "stream") if "device" in lane else ("pid", "tid", "depth")
    wanted = equal(keys[0], lane[keys[0]])
    for key in keys[1:]:
        wanted &= equal(key, lane[key])
    return pq.read_table(
        Path(run) / "artifacts" / f"{table}.parquet", columns=["ts_ns", "dur_ns", "name"], filters=wanted
    ).to_pandas()


def _bins(starts: np.ndarray, ends: np.ndarray, names, edges: np.ndarray) -> dict:
    width = np.diff(edges)
    count = len(width)
    busy = np.zeros(count)
    if len(starts):
        reach = np.maximum.accumulate(ends)
        first = np.concatenate([[True], starts[1:] > reach[:-1]])  # where the union of all events has a gap before
        begin, end = starts[first], reach[np.concatenate([np.flatnonzero(first)[1:] - 1, [len(starts) - 1]])]
        # busy time up to a moment, in floats relative to the first edge, which keep whole ns for a hundred days
        moments = np.column_stack([begin, end]).reshape(-1) - edges[0]
        done = np.column_stack([np.concatenate([[0], np.cumsum(end - begin)[:-1]]), np.cumsum(end - begin)]).reshape(-1)
        busy = np.diff(np.interp((edges - edges[0]).astype(float), moments.astype(float), done.astype(float))) / np.maximum(
            width, 1
        )
    which = np.clip(np.searchsorted(edges, starts, "right") - 1, 0, count - 1)
    longest: list[str | None] = [None] * count
    order = np.lexsort((ends - starts, which))
    last = np.flatnonzero(np.diff(which[order], append=-1)) if len(order) else []
    for row in order[last] if len(order) else ():
        longest[which[row]] = names.iloc[row]
    return {"busy": np.clip(busy, 0, 1).tolist(), "count": np.bincount(which, minlength=count).tolist(), "name": longest}
