"""Runs as pages read them: cached by the files on disk, so that a redraw is cheap and a growing run is seen
at once."""

from __future__ import annotations

import os
import time
from pathlib import Path

import streamlit as st

from fusescope.core.errors import RunError
from fusescope.core.records import Record, Run
from fusescope.store import folder, library
from fusescope.store.bounded import plain

_LIVE_SECONDS = 20


def read(run_id: str) -> Run:
    """The run as it stands; RunError where it cannot be read."""
    return folder.read(library.find(run_id))


def records(run_id: str) -> list[Record]:
    """Its finished records."""
    path = library.find(run_id)
    return list(_records(str(path), stamp(path, "results.jsonl")))


def samples(run_id: str, case_key: str) -> list[dict]:
    """Its raw samples of one case."""
    path = library.find(run_id)
    return [s for s in _samples(str(path), stamp(path, "samples.jsonl")) if s["case_key"] == case_key]


def log(run_id: str, last_bytes: int = 20_000) -> str:
    """The end of its log; of what is no plain file, why it cannot be read."""
    file = library.find(run_id) / "log.txt"
    try:
        with plain.opened(file) as f:
            f.seek(max(0, os.fstat(f.fileno()).st_size - last_bytes))
            return f.read(last_bytes).decode(errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{file.name} cannot be read: {error.strerror}"


def artifacts(run_id: str) -> list[tuple[str, int]]:
    """(path within the run folder, bytes) of everything a person may want to download."""
    home = library.find(run_id)
    return [(str(p.relative_to(home)), p.stat().st_size) for p in plain.files(home)]


def state() -> int:
    """What caches over all runs have in their key: it stays for as long as no run changes, and while one is
    live for some seconds."""
    number = library.state()
    return -int(time.time() // _LIVE_SECONDS) if number is None else number


def newest(
    kind: str, op: str | None = None, recorded: bool | None = None, running: bool = True
) -> Run | None:
    """The latest run of a kind that ended with a record, or that is running where ``running``: one that
    ended before any result hides no better one. None without one."""
    found, _ = library.runs(kind=kind, op=op, recorded=recorded, limit=50)
    return next(
        (r for r in found if (running and r.status == "running") or (not r.live and has_records(r.id))), None
    )


def measured() -> list[tuple[str, str]]:
    """(operator, device name) of the comparisons there are, this machine's or not: reading them all takes as
    long as a chart."""
    return _measured(state())


@st.cache_data(max_entries=4, show_spinner=False)
def _measured(state: int) -> list[tuple[str, str]]:
    runs = (run for kind in ("bench", "model") for run in library.runs(kind=kind, limit=200)[0])
    return list(dict.fromkeys((str(run.spec.get("op")), run.device_name) for run in runs))


def has_records(run_id: str) -> bool:
    """Whether a run holds any record that can be read."""
    try:
        return bool(records(run_id))
    except RunError:
        return False


def of_model(kind: str, model: str) -> list[Run]:
    """Runs of a kind on a model, newest first, without failed ones (which leave no report)."""
    found, _ = library.runs(kind=kind, limit=60)
    kept = ("done", "queued", "running")
    return [r for r in found if r.spec.get("model") == model and r.status in kept]


def recorded(limit: int = 20) -> list[Run]:
    """Runs that ship with the project."""
    found, _ = library.runs(recorded=True, limit=limit)
    return found


def exists(run_id: str) -> bool:
    try:
        library.find(run_id)
    except RunError:
        return False
    return True


def stamp(path: Path, name: str) -> tuple[int, int]:
    """Changes when that file of a run (or its compressed form) does."""
    for file in (path / name, path / f"{name}.gz"):
        if file.is_file():
            s = file.stat()
            return s.st_size, s.st_mtime_ns
    return 0, 0


@st.cache_resource(max_entries=64, show_spinner=False)  # immutable: copies would cost 10 ms per run
def _records(path: str, stamp: tuple[int, int]) -> tuple[Record, ...]:
    return tuple(folder.records(Path(path)))


@st.cache_data(max_entries=6, show_spinner=False)
def _samples(path: str, stamp: tuple[int, int]) -> list[dict]:
    return folder.samples(Path(path))
