"""One run, one folder: where it is, in what form, and what state it is in.

    <YYYYMMDD-HHMMSS>-<kind>-<6 hex>/    times in UTC, so that names sort by age
      run.json        the request, state, times, progress, environment; replaced by rename, by the worker
      notes.json      by people: title, tags, notes       cancel     present = a stop was requested
      results.jsonl   one Record a line                        samples.jsonl   raw samples      log.txt
                      artifacts/

Alive means that a worker holds the flock on the folder. A folder that says queued or running without one is
interrupted: ``read`` says so, and writes it down when it gets the lock itself.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import time
from pathlib import Path

from fusescope.core import paths
from fusescope.core.errors import RunError
from fusescope.core.records import SCHEMA_VERSION, Progress, Record, Run
from fusescope.core.schema.run_files import NOTES, Samples
from fusescope.core.schema.typed import build
from fusescope.store import files
from fusescope.store.bounded.plain import ID, make_folder, touch
from fusescope.store.live.signs import silence, silent_end
from fusescope.store.writer import Writer

__all__ = [
    "ID",
    "Writer",
    "alive",
    "cancelling",
    "create",
    "is_recorded",
    "is_unchanged",
    "read",
    "records",
    "request_cancel",
    "samples",
    "write_notes",
]

_KEPT = {"results.jsonl": "records", "samples.jsonl": "lines of raw samples"}
CANCELLING = "cancelling; finished results are kept"
_START_GRACE_S = 15.0  # how long a queued run may be without a worker that was started by hand


def new_id(kind: str) -> str:
    """A fresh run id; ValueError for a kind that cannot be part of a folder's name."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", kind):
        raise ValueError(f"a job kind is lower-case letters, digits and _, not {kind!r}")
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{kind}-{secrets.token_hex(3)}"


def create(kind: str, spec: dict, title: str = "") -> Path:
    """A new run folder, queued; it appears under its name only when it is whole. Raises RunError (disk full,
    no right)."""
    home = paths.profiles()
    _sweep(home)
    run_id = new_id(kind)
    hidden = home / f".new-{run_id}"
    try:
        with files.clear_errors(home):
            (hidden / "artifacts").mkdir(parents=True)
            first = Progress(message="waiting for its process to start", updated=time.time())
            run = Run(run_id, kind, spec, "queued", created=time.time(), progress=first)
            files.write_json(hidden / "run.json", own_part(run))
            files.write_json(hidden / "notes.json", {"title": title, "tags": [], "notes": ""})
            make_folder(home / ".live")
            touch(home / ".live" / run_id)
            os.replace(hidden, home / run_id)
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        with contextlib.suppress(OSError):
            (home / ".live" / run_id).unlink()
        raise
    return home / run_id


def _sweep(home: Path) -> None:
    """Remove what killed processes left half made, half imported or half deleted a day ago or longer."""
    with contextlib.suppress(OSError), os.scandir(home) as entries:
        for entry in entries:
            if (
                entry.name.startswith((".new-", ".import-", ".deleted-"))
                and time.time() - entry.stat().st_mtime > 86400
            ):
                shutil.rmtree(entry.path, ignore_errors=True)


def own_part(run: Run) -> dict:
    """What of a Run is in run.json: all but what people wrote and where the folder is."""
    return {k: v for k, v in run.to_json().items() if k not in ("title", "tags", "notes", "recorded")}


def read(path: Path) -> Run:
    """The run as it stands. RunError: no run folder, torn, with values of another type than every run's, or
    written by a newer version."""
    path = Path(path)
    data = _run_json(path)
    run = _typed(path, data)
    recorded = is_recorded(path)
    if run.live and recorded:
        data |= {"status": "interrupted", "reason": "recorded before it was finished"}
    elif run.live and not alive(path):
        data = _settle(path)
    elif run.live and (silent := silence(path, data.get("worker"))):
        data |= {"reason": silent, "progress": {**data.get("progress", {}), "message": silent}}
    elif run.live and cancelling(path):
        data["progress"] = {**data.get("progress", {}), "message": CANCELLING, "eta_s": None}
    if lost := _lost(path, _noted(path, data)):
        reason = f"{data['reason']}; incomplete: {lost}" if data.get("reason") else f"incomplete: {lost}"
        data |= {"status": "incomplete", "reason": lost} if run.status == "done" else {"reason": reason}
    return _typed(path, data | _notes(path) | {"recorded": recorded})


def _typed(path: Path, data: dict) -> Run:
    """run.json as a Run; its id is the folder's name, whatever it says itself."""
    named = {"id": path.name} if ID.fullmatch(path.name) else {}
    try:
        return Run.from_json(data | named)
    except (TypeError, ValueError) as e:
        raise RunError(f"{path / 'run.json'} is not that of a run: {e}") from None


def _notes(path: Path) -> dict:
    """What people wrote; what of it cannot be read is lost, the measurement is not."""
    try:
        notes = files.read_json(path / "notes.json")
    except RunError:
        return {}
    found = {}
    for parameter in NOTES:
        with contextlib.suppress(ValueError):
            found[parameter.name] = parameter.check(notes.get(parameter.name))
    return found


def _noted(path: Path, data: dict) -> dict[str, files.Contents]:
    """What the writer noted of results and samples when the run ended; empty for one that has not, or that
    an older version wrote."""
    noted = data.get("contents") or {}
    try:
        return {name: build(files.Contents, noted[name], name) for name in _KEPT if name in noted}
    except (TypeError, ValueError) as e:
        raise RunError(f"{path / 'run.json'} is not that of a run: contents: {e}") from None


def _lost(path: Path, noted: dict[str, files.Contents]) -> str | None:
    """What was cut off or deleted since the run ended: "12 of 40 records"; None where nothing was."""
    said = []
    for name, before in noted.items():
        if files.has_size(path / name, before.bytes):
            continue
        try:
            there = files.contents(path / name).lines
        except RunError:
            there = 0
        whole = f"{before.lines} {_KEPT[name]}"
        said.append(f"{there} of {whole}" if there < before.lines else f"the {whole} were changed")
    return ", ".join(said) or None


def is_unchanged(path: Path) -> bool:
    """Whether the results are text that can be read to its end, and what the writer noted, where it did."""
    try:
        noted = _noted(path, _run_json(path)).get("results.jsonl")
        there = files.contents(path / "results.jsonl", text=True)
    except RunError:
        return False
    return noted is None or there.bytes != noted.bytes or there == noted


def lacks_records(path: Path) -> bool:
    """Whether results were cut off or deleted since the run ended."""
    noted = _noted(path, _run_json(path)).get("results.jsonl")
    return noted is not None and not files.has_size(path / "results.jsonl", noted.bytes)


def records(path: Path) -> list[Record]:
    """The finished records in the order they were written; a torn last line is left out. RunError names what
    is broken."""
    path = Path(path)
    noted = _noted(path, _run_json(path)).get("results.jsonl")
    found = []
    for number, data in enumerate(files.lines(path / "results.jsonl", noted), 1):
        try:
            found.append(Record.from_json(data))
        except (TypeError, ValueError) as e:
            raise RunError(f"{path / 'results.jsonl'}: line {number} is not a record ({e})") from None
    return found


def samples(path: Path) -> list[dict]:
    """Raw samples, one per record and mode: {"case_key", "impl", "mode", "ms": […], "state": […] or None}.
    RunError names what is broken."""
    path = Path(path)
    noted = _noted(path, _run_json(path)).get("samples.jsonl")
    found = []
    for number, data in enumerate(files.lines(path / "samples.jsonl", noted), 1):
        try:
            build(Samples, data)
        except ValueError as e:
            raise RunError(f"{path / 'samples.jsonl'}: line {number} holds no samples ({e})") from None
        found.append(data)
    return found


def alive(path: Path) -> bool:
    """Whether a worker holds the folder."""
    try:
        return files.is_locked(Path(path))
    except OSError:
        return False


def is_recorded(path: Path) -> bool:
    """Whether the run is one of the read-only recordings under profiles/recorded/."""
    return os.path.basename(os.path.dirname(os.path.abspath(path))) == "recorded"


def cancelling(path: Path) -> bool:
    """Whether a stop was requested."""
    return (Path(path) / "cancel").exists()


def request_cancel(path: Path) -> None:
    """Ask the worker to stop; the run says cancelled once it has. RunError for a recorded run."""
    if is_recorded(path):
        raise RunError(f"{Path(path).name} is a recorded run; there is nothing to stop")
    with files.clear_errors(Path(path)):
        touch(Path(path) / "cancel")


def write_notes(
    path: Path, title: str | None = None, tags: list[str] | None = None, notes: str | None = None
) -> None:
    """Change a run's title, tags or notes; what is None stays. RunError for a recorded run, which is
    read-only."""
    path = Path(path)
    if is_recorded(path):
        raise RunError(
            f"{path.name} is a recorded run and read-only; export it and import the copy to annotate it"
        )
    _run_json(path)
    written = {"title": "", "tags": [], "notes": ""}
    with contextlib.suppress(RunError):
        written |= files.read_json(path / "notes.json")
    given = {"title": title, "tags": None if tags is None else [str(t) for t in tags], "notes": notes}
    with files.clear_errors(path):
        files.write_json(path / "notes.json", written | {k: v for k, v in given.items() if v is not None})


def _run_json(path: Path) -> dict:
    data = files.read_json(path / "run.json")
    schema = data.get("schema", 0)
    if type(schema) is not int or schema > SCHEMA_VERSION:
        raise RunError(
            f"{path.name} was written by a newer version "
            f"(run schema {schema}, this one reads up to {SCHEMA_VERSION}); "
            "update FuseScope to open it"
        )
    return data


def _settle(path: Path) -> dict:
    """run.json of a live-looking run that no process holds: marked interrupted, under the lock, if it can be
    had."""
    lock = files.take_lock(path)
    try:
        data = _run_json(path)
        _typed(path, data)  # again: its worker may have finished, or a new one begun, since
        queued = data.get("status") == "queued"
        if lock is None or not (queued or data.get("status") == "running"):
            return data
        by_hand = queued and not {"worker", "launched"} & data.keys()
        if by_hand and 0 <= time.time() - (data.get("created") or 0) < _START_GRACE_S:
            return data
        status, reason = silent_end(path, data)
        data |= {"status": status, "reason": reason, "finished": time.time()}
        with contextlib.suppress(
            OSError
        ):  # a folder that may only be read says the same without being marked
            files.write_json(
                path / "run.json", {k: v for k, v in data.items() if k not in ("queue", "worker")}
            )
            (path.parent / ".live" / path.name).unlink(missing_ok=True)
        return data
    finally:
        if lock is not None:
            os.close(lock)
