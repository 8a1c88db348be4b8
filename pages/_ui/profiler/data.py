"""Profiles as the page reads them: cached by what is on disk, so that redrawing a large trace is cheap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import streamlit as st

from fusescope.analysis.profile.device_time import DeviceTime, read
from fusescope.analysis.ranks import intervals
from fusescope.core import paths
from fusescope.core.records import Run
from fusescope.store import folder, library, profile, timeline

KINDS = ("trace", "import", "ncu", "nsys", "parallel")
"""Job kinds that leave a profile, "parallel" where it was requested."""
LOOK = "Open a profile"
"""The page's mode that shows a profile."""
TRACE = "artifacts/trace.json.gz"
_EACH = 60  # of each kind, the newest, are offered


@dataclass(frozen=True)
class Profile:
    """A run with what it holds: ``tables`` by name; ``summary`` None where there is only telemetry, or a
    trace without tables. rank: the one of many that path, summary and tables are of."""

    run: Run
    path: Path
    summary: dict | None
    tables: tuple[str, ...]
    stamp: str
    rank: int | None = None

    @property
    def id(self) -> str:
        return self.run.id

    def has(self, *tables: str) -> bool:
        return all(self.rows(t) for t in tables)

    def rows(self, table: str) -> int:
        """Rows of a table, 0 where it is not there."""
        return count(str(self.path), table, self.stamp) if table in self.tables else 0

    def kernel_ns(self) -> float | None:
        """What the trace's kernels take per step; None without kernels."""
        if not self.has("kernel_summary"):
            return None
        total = sum(r["total_ns"] for r in rows(str(self.path), "kernel_summary", self.stamp))
        return total / max(1, self.rows("steps"))

    def name(self, view: str) -> str:
        """The file name of what a view saves."""
        return f"{self.run.id}-{view}" if self.rank is None else f"{self.run.id}-rank{self.rank}-{view}"

    @property
    def trace(self) -> Path | None:
        """The Chrome trace itself, where the run keeps it."""
        return self.path / TRACE if (self.path / TRACE).is_file() else None

    @property
    def trace_name(self) -> str:
        """Where that is in the run's folder."""
        return TRACE if self.rank is None else f"artifacts/ranks/{self.rank}/{TRACE}"


def opened(run_id: str) -> None:
    """Look at a run from the next drawing on (for callbacks)."""
    st.session_state["profiler/run"] = run_id
    st.session_state.pop("profiler/failed", None)
    st.session_state["profiler/do"] = LOOK


def offered() -> list[str]:
    """Ids of the runs that can be shown, this machine's newest first; recorded ones last, whole models before
    kernels and runs on many ranks, of each the traces before the reports, and eager before other modes of the
    same work: the page opens on the first."""
    home = paths.profiles()
    stamps = [p.stat().st_mtime_ns if p.is_dir() else 0 for p in (home, home / ".live", home / "recorded")]
    return _offered(str(home), tuple(stamps))


@st.cache_data(ttl=20, max_entries=4, show_spinner=False)
def _offered(home: str, stamps: tuple) -> list[str]:
    found = [r for kind in KINDS for r in library.runs(kind=kind, limit=_EACH)[0]]
    found = [r for r in found if r.live or r.status in ("done", "failed", "interrupted", "cancelled")]
    found.sort(key=lambda r: (r.recorded, _group(r) if r.recorded else (), -(r.created or 0)))
    return [r.id for r in found if r.live or has_profile(library.find(r.id))]


def of_model(run: Run) -> bool:
    """Whether it profiles a whole model."""
    return str(run.spec.get("op") or "").startswith("model:")


def _group(run: Run) -> tuple:
    """A sort key of recorded runs."""
    order = ("trace", "ncu", "nsys")
    what = 2 if run.kind == "parallel" else 0 if of_model(run) else 1
    place = order.index(run.kind) if run.kind in order else len(order)
    return what, place, str(run.spec.get("op")), str(run.spec.get("impl")) != "eager"


def has_profile(path: Path) -> bool:
    """Whether a run left anything to show."""
    there = path / "artifacts"
    return any((there / f).is_file() for f in ("summary.json", "trace.json.gz", "telemetry.parquet"))


def load(run_id: str) -> Profile:
    """The run and what it holds. RunError: no such run, torn, or from a newer version."""
    path = library.find(run_id)
    stamp = _stamp(path)
    return Profile(folder.read(path), path, _summary(str(path), stamp), tuple(profile.names(path)), stamp)


def _stamp(path: Path) -> str:
    file = path / "artifacts" / "summary.json"
    return str(file.stat().st_mtime_ns) if file.is_file() else ""


@st.cache_resource(max_entries=128, show_spinner=False)
def _summary(path: str, stamp: str) -> dict | None:
    """Kept uncopied in this process; read-only."""
    return profile.summary(Path(path))


def of_rank(found: Profile, rank: int) -> Profile:
    """One rank of a profile of many. RunError as ``load``."""
    path = profile.rank_folder(found.path, rank)
    return replace(
        found,
        path=path,
        summary=_summary(str(path), _stamp(path)),
        tables=tuple(profile.names(path)),
        stamp=f"{found.stamp}/{rank}",
        rank=rank,
    )


@st.cache_data(max_entries=400, show_spinner=False)
def count(path: str, table: str, stamp: str) -> int:
    import pyarrow.parquet as pq

    return pq.read_metadata(profile.file(Path(path), table)).num_rows


@st.cache_data(max_entries=24, show_spinner=False)
def small(path: str, table: str, stamp: str) -> pd.DataFrame:
    """A whole table; for those with one row per name, not per event."""
    return profile.table(Path(path), table)


@st.cache_data(max_entries=24, show_spinner=False)
def rows(path: str, table: str, stamp: str) -> list[dict]:
    """The same as dicts."""
    return profile.rows(Path(path), table)


@st.cache_data(max_entries=64, show_spinner=False)
def open_time(path: str, stamp: str) -> tuple[int, int]:
    """(ns from the first operator's begin to the last one's end, ns of it in which any was open, on whichever
    thread)."""
    found = profile.table(Path(path), "operators", ["ts_ns", "dur_ns"])
    begin = found["ts_ns"].to_numpy()
    end = begin + found["dur_ns"].to_numpy()
    if not len(begin):
        return 0, 0
    return int(end.max() - begin.min()), intervals.length(intervals.union(begin, end))


@st.cache_data(max_entries=64, show_spinner=False)
def page(
    path: str, table: str, order: str | None, descending: bool, text: str, limit: int, offset: int, stamp: str
):
    """One page of a table, and how many rows match."""
    return profile.page(Path(path), table, order, descending, text, limit, offset)


@st.cache_data(max_entries=16, show_spinner=False)
def lanes(path: str, stamp: str) -> dict[str, dict]:
    return timeline.lanes(Path(path))


@st.cache_resource(max_entries=24, show_spinner=False)
def events(path: str, lane: str, stamp: str) -> timeline.Events:
    """The events of a lane, kept uncopied in this process; read-only."""
    return timeline.events(Path(path), lanes(path, stamp)[lane])


@st.cache_data(max_entries=64, show_spinner=False)
def window(path: str, lane: str, begin: int, end: int, bins: int, few: int, stamp: str) -> dict:
    return timeline.window(events(path, lane, stamp), begin, end, bins, few)


@st.cache_data(max_entries=16, show_spinner=False)
def tree(
    path: str, by: tuple[str, ...], stamp: str, table: str = "kernels", time: str = "dur_ns"
) -> list[dict]:
    return timeline.tree(Path(path), by, table, time)


@st.cache_resource(max_entries=64, show_spinner=False)
def device_time(path: str, stamp: str) -> DeviceTime | None:
    """The devices' time by part and step; None without kernels and copies. Kept uncopied; read-only."""
    return read(timeline.device_activities(Path(path)))


@st.cache_data(max_entries=64, show_spinner=False)
def columns(path: str, table: str, stamp: str) -> dict[str, str]:
    return profile.columns(Path(path), table)
