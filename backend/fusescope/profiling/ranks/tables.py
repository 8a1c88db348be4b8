"""The tables over all ranks, from each rank's activities."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fusescope.analysis.ranks import arrivals, breakdown, clocks, critical, intervals, matching
from fusescope.analysis.ranks.activities import ABSENT, KINDS, Activities
from fusescope.profiling import table
from fusescope.profiling.ranks import kernels, read
from fusescope.profiling.table import Coded, coded

_MOST_ON_PATH = 20_000_000  # activities of all ranks, which the critical path needs at once
_MOST_SEGMENTS = 200_000


def write(
    files: Mapping[int, Path],
    homes: Mapping[int, Path],
    about: Mapping[int, dict],
    target: Callable[[str], Path],
    progress: Callable[[float, str], None],
    notes: Sequence[str],
) -> dict:
    """Write the tables; gives summary.json."""
    notes = list(notes)
    on_device = any(read.has_device(home) for home in homes.values())
    each = {}
    for rank, home in homes.items():
        each[rank] = read.activities(home, on_device)
        progress(0.92, f"rank {rank}: {len(each[rank]):,} activities")
    found = matching.match(each)
    offsets, told = _clocks(found, each, about)
    each = {rank: _moved(of, offsets[rank]) for rank, of in each.items()}
    progress(0.94, "collectives")
    skew, columns = _events(found, each)
    sure = _plausible(found, columns)
    late = arrivals.stragglers(skew, found.which, found.rank, sure, list(each))
    notes += _notes(found, each, sure, on_device)
    for name, rows in (
        ("rank_time", _times(files, each, about, offsets, late)),
        ("rank_idle", _idle(each if on_device else {})),
        ("collectives", _collectives(found, skew, columns, sure)),
        ("collective_ranks", columns),
        ("rank_kernels", kernels.by_rank(each)),
    ):
        table.write(target(f"{name}.parquet"), rows)
    progress(0.97, "critical path")
    path = _path(found, skew, found.waits & sure, each, notes)
    table.write(target("critical_path.parquet"), _segments(path))
    summaries = {
        r: json.loads((home / "artifacts" / "summary.json").read_text()) for r, home in homes.items()
    }
    rows = {"ranks": len(each), "collectives": found.count, "critical_path": len(path)}
    for summary in summaries.values():
        for name, count in summary["rows"].items():
            rows[name] = rows.get(name, 0) + count
    first = next(iter(files.values()))
    return {
        "schema": 1,
        "source": "ranks",
        "file": first.parent.name,
        "file_bytes": sum(f.stat().st_size for f in files.values()),
        "events": sum(s["events"] for s in summaries.values()),
        "notes": notes + _common(summaries),
        "gpus": next((s["gpus"] for s in summaries.values() if s["gpus"]), []),
        "rows": rows,
        "totals": {},
        "devices": [],
        "idle": {},
        "longest_gaps": [],
        "coverage": None,
        "span_ns": _span(each),
        "on_device": on_device,
        "clocks": told,
        "critical_path": critical.shares(path)[:40],
        "ranks": [
            {"rank": r, "file": f.name, "events": summaries[r]["events"], **about[r]}
            for r, f in files.items()
        ],
    }


def _clocks(found: matching.Matched, each: Mapping, about: Mapping) -> tuple[dict[int, int], list[dict]]:
    """(rank → ns to add; one dict per clock, for summary.json)."""
    of = clocks.by_host(
        {r: a["host"] if a["host"] is None else f"h{a['host']}" for r, a in about.items()}, list(each)
    )
    count = max(of.values()) + 1
    rows = found.waits[found.which] if found.count else np.zeros(0, bool)
    which, rank = found.which[rows], found.rank[rows]
    end = _column(each, rank, found.row[rows], "end")
    estimates = clocks.estimate(which, end, np.array([of[r] for r in rank.tolist()], np.int64), count)
    told = [
        {
            "ranks": [r for r, c in of.items() if c == number],
            "host": next((about[r]["host"] for r, c in of.items() if c == number), None),
            "offset_ns": clock.offset_ns,
            "estimate_ns": clock.estimate_ns,
            "spread_ns": clock.spread_ns,
            "collectives": clock.collectives,
        }
        for number, clock in enumerate(estimates)
    ]
    return {r: estimates[c].offset_ns for r, c in of.items()}, told


def _moved(of: Activities, by: int) -> Activities:
    if not by:
        return of
    launch = np.where(of.launch == ABSENT, ABSENT, of.launch + by)
    return replace(of, begin=of.begin + by, end=of.end + by, launch=launch)


def _column(each: Mapping[int, Activities], rank: np.ndarray, row: np.ndarray, name: str) -> np.ndarray:
    """A column of the activities, for (rank, row) pairs."""
    found = np.zeros(len(rank), np.int64)
    for r in np.unique(rank).tolist():
        mine = rank == r
        found[mine] = getattr(each[r], name)[row[mine]]
    return found


def _events(found: matching.Matched, each: Mapping[int, Activities]) -> tuple[dict, dict]:
    """(arrivals by collective; the table collective_ranks)."""
    begin, end, step = (_column(each, found.rank, found.row, name) for name in ("begin", "end", "step"))
    skew = arrivals.skews(found.which, found.rank, begin, end, found.count)
    hidden = np.zeros(len(begin), np.int64)
    for r, of in each.items():
        mine = found.rank == r
        hidden[mine] = intervals.covered(begin[mine], end[mine], breakdown.compute_of(of))
    return skew, {
        "collective": found.which,
        "rank": found.rank,
        "ts_ns": begin,
        "dur_ns": end - begin,
        "wait_ns": skew["wait_ns"],
        "overlapped_ns": hidden,
        "exposed_ns": end - begin - hidden,
        "step": step,
        "name": _names(found, each),
    }


def _names(found: matching.Matched, each: Mapping[int, Activities]) -> Coded:
    """Of the events that were matched."""
    texts: dict[str, int] = {}
    codes = np.full(len(found.rank), -1)
    for r, of in each.items():
        mine = found.rank == r
        shared = np.array([texts.setdefault(name, len(texts)) for name in of.names] + [-1])
        codes[mine] = shared[of.name[found.row[mine]]]
    there, values = np.unique(codes[codes >= 0]), list(texts)
    place = np.full(len(values) + 1, -1, np.int32)
    place[there] = np.arange(len(there))
    return Coded(place[codes], [values[code] for code in there.tolist()])


def _collectives(found: matching.Matched, skew: dict, events: dict, sure: np.ndarray) -> dict:
    sums = np.zeros((2, found.count), np.int64)
    np.add.at(sums[0], found.which, events["overlapped_ns"])
    np.add.at(sums[1], found.which, events["dur_ns"])
    sizes = [e[0] if e else ABSENT for e in found.elements]
    return {
        "collective": np.arange(found.count, dtype=np.int64),
        "name": coded(found.names),
        "group": coded([g or None for g in found.groups]),
        "group_size": np.array(found.sizes, np.int64),
        "elements": np.array(sizes, np.int64),
        "element": coded([(e[1] or None) if e else None for e in found.elements]),
        **{
            column: np.asarray(skew[column], np.int64)
            for column in ("ranks", "first_ns", "last_ns", "skew_ns", "last_rank", "ahead_ns", "transfer_ns")
        },
        "overlap": np.where(sums[1] > 0, sums[0] / np.maximum(sums[1], 1), np.nan),
        "waits": found.waits,
        "plausible": sure,
    }


def _plausible(found: matching.Matched, events: dict) -> np.ndarray:
    """Whether a collective that no rank can leave early was open on all ranks at once (True for the
    others)."""
    if not found.count:
        return np.zeros(0, bool)
    return clocks.spans(found.which, events["ts_ns"], events["ts_ns"] + events["dur_ns"]) | ~found.waits


def _times(files, each, about, offsets, late) -> dict:
    rows = [{"rank": r, **breakdown.times(of), **late[r], "offset_ns": offsets[r]} for r, of in each.items()]
    columns = {k: np.array([row[k] for row in rows], np.int64) for k in rows[0]}
    columns["activities"] = np.array([len(of) for of in each.values()], np.int64)
    columns["host"] = np.array(
        [ABSENT if about[r]["host"] is None else about[r]["host"] for r in each], np.int64
    )
    return columns | {"file": coded([files[r].name for r in each])}


def _idle(each: Mapping[int, Activities]) -> dict:
    rows = [{"rank": r, **row} for r, of in each.items() for row in breakdown.idle_by_stream(of)]
    names = ("rank", "stream", "host_wait_ns", "kernel_wait_ns", "other_ns")
    columns = {k: np.array([row[k] for row in rows], np.int64) for k in names}
    return columns | {"device": columns["stream"] >> 32, "stream": columns["stream"] & ((1 << 32) - 1)}


def _path(found, skew, sure: np.ndarray, each, notes: list[str]) -> list[critical.Segment]:
    if sum(map(len, each.values())) > _MOST_ON_PATH:
        notes.append(f"the critical path is left out: more than {_MOST_ON_PATH:,} activities")
        return []
    kept = sure[found.which]
    which, rank, row = found.which[kept], found.rank[kept], found.row[kept]
    came = skew["last_rank"][which] == rank
    last = critical.Last({r: len(of) for r, of in each.items()}, which, rank, row, came)
    path = critical.path(each, last)
    if len(path) > _MOST_SEGMENTS:
        notes.append(f"the last {_MOST_SEGMENTS:,} of the critical path's {len(path):,} segments are kept")
    return path[-_MOST_SEGMENTS:]


def _segments(path: Sequence[critical.Segment]) -> dict:
    return {
        "rank": np.array([s.rank for s in path], np.int64),
        "ts_ns": np.array([s.begin for s in path], np.int64),
        "dur_ns": np.array([s.end - s.begin for s in path], np.int64),
        "kind": coded([s.kind for s in path]),
        "name": coded([s.name or None for s in path]),
        "activities": np.array([s.activities for s in path], np.int64),
    }


def _notes(found: matching.Matched, each, sure: np.ndarray, on_device: bool) -> list[str]:
    notes = []
    if not on_device:
        notes.append(
            "no rank has a device: compute is the time of outermost operators of the host, communication "
            "that of the ranges of gloo or MPI"
        )
    talks = sum(int((of.kind == KINDS.index("communication")).sum()) for of in each.values())
    if not talks:
        notes.append("no rank has a collective: nothing is matched, and clocks cannot be compared")
    notes += [f"{count:,} of {talks:,} collective calls {why}" for why, count in found.left.items()]
    odd = int((~sure).sum())
    if odd:
        notes.append(
            f"{odd:,} of {found.count:,} matched collectives were not open on all ranks at once, which they "
            "must be: they may be matched wrongly, and count neither for stragglers nor for the critical "
            "path"
        )
    return notes


def _common(summaries: Mapping[int, dict]) -> list[str]:
    """Each file's own notes, once."""
    ranks: dict[str, list[int]] = {}
    for rank, summary in summaries.items():
        for note in summary["notes"]:
            ranks.setdefault(note, []).append(rank)
    return [
        f"rank{'s' if len(of) > 1 else ''} {', '.join(map(str, of[:8]))}{' …' if len(of) > 8 else ''}: {note}"
        for note, of in list(ranks.items())[:40]
    ]


def _span(each: Mapping[int, Activities]) -> list[int] | None:
    there = [of for of in each.values() if len(of)]
    return (
        [min(int(of.begin.min()) for of in there), max(int(of.end.max()) for of in there)] if there else None
    )
