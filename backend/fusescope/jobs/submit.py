"""What pages and the command line do with jobs: submit, watch, cancel, resume. Imports no torch."""

from __future__ import annotations

import os
import time

from fusescope.core import paths
from fusescope.core.errors import RunError
from fusescope.core.records import Run
from fusescope.core.schema import Parameter
from fusescope.jobs import kinds
from fusescope.jobs.process.launch import launch, warm_up
from fusescope.store import files, folder, library

SPEC = Parameter("a spec", "object")
DEADLINE = Parameter("deadline_s", "float", None, "seconds", above=0)

__all__ = ["cancel", "queue", "resume", "submit", "validate", "wait", "warm_up"]


def validate(kind: str, spec: dict) -> dict:
    """The complete spec; ValueError: the rule, the value given, what is supported.

    ``deadline_s`` in any spec limits the whole job (seconds); each kind names its other keys.
    """
    spec = SPEC.check(spec)
    limit = spec.pop("deadline_s", None)
    whole = kinds.load(kind).validate(spec)
    return whole if limit is None else whole | {"deadline_s": DEADLINE.check(limit)}


def submit(kind: str, spec: dict, title: str = "") -> str:
    """Start a job and return its run id at once; the job outlives whoever submitted it.

    ValueError for a bad spec, RunError where the run folder cannot be made.
    """
    path = folder.create(kind, validate(kind, spec), title)
    lock = files.take_lock(path, wait_s=1.0)
    if lock is None:
        raise RunError(f"{path.name} was taken by another worker in the moment it was made")
    try:
        launch(path, lock)
    finally:
        os.close(lock)
    return path.name


def resume(run_id: str) -> str:
    """Go on with a run that was interrupted, cancelled or failed: what has a record is not measured again.

    ValueError for a run that is live or done, RunError for a recorded one or one that cannot be read.
    """
    path = library.find(run_id)
    if folder.is_recorded(path):
        raise RunError(f"{path.name} is a recorded run and read-only")
    run = folder.read(path)
    if run.status == "done":
        raise ValueError(f"{run.id} is done; submit a new run to measure it again")
    lock = files.take_lock(path, wait_s=1.0)
    if lock is None:
        raise ValueError(f"{run.id} is {run.status} and needs no resuming")
    try:
        (path / "cancel").unlink(missing_ok=True)
        writer = folder.Writer(path, os.dup(lock))
        writer.state("queued")
        writer.progress(0, 0, "resuming")
        writer.close()
        launch(path, lock)
    finally:
        os.close(lock)
    return run.id


def cancel(run_id: str) -> None:
    """Ask a run to stop; its records stay. Nothing happens to a run that has ended."""
    path = library.find(run_id)
    if folder.read(path).live:
        folder.request_cancel(path)


def wait(run_id: str, timeout_s: float | None = None) -> Run:
    """The run once it has ended, or as it stands when the time (seconds) is over; look at ``live``."""
    path = library.find(run_id)
    end = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        run = folder.read(path)
        if not run.live or (end is not None and time.monotonic() >= end):
            return run
        time.sleep(0.05)


def queue() -> list[dict]:
    """Live runs, running first, then by place: {"id", "kind", "title", "status", "place", "device", "lock",
    "progress"}.

    place: 0 = runs, n = n jobs go before it on its device, None = it is starting. device: "cpu", "cuda:0",
    None = none or not known yet; lock: what serialises it among all users of the machine, "cpu" or the GPU's
    UUID.
    """
    found = []
    live = paths.profiles() / ".live"
    for marker in sorted(live.iterdir()) if live.is_dir() else ():
        path = paths.profiles() / marker.name
        try:
            run = folder.read(path)
            place = files.read_json(path / "run.json").get("queue") or {}
        except RunError:
            if not path.is_dir():
                marker.unlink(missing_ok=True)
            continue
        if not run.live:
            marker.unlink(missing_ok=True)
            continue
        facts = {
            "id": run.id,
            "kind": run.kind,
            "title": run.title,
            "status": run.status,
            "progress": run.progress,
        }
        found.append(
            facts
            | {
                "place": 0 if run.status == "running" else place.get("place"),
                "device": place.get("device"),
                "lock": place.get("lock"),
            }
        )
    return sorted(found, key=lambda j: (j["place"] is None, j["place"] or 0, j["id"]))
