"""What pages and the command line do with jobs: submit, watch, cancel, resume. Imports no torch."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

from fusescope.core import paths
from fusescope.core.errors import RunError
from fusescope.core.foreign import code
from fusescope.core.machine import environment
from fusescope.core.records import Run
from fusescope.core.schema import Parameter
from fusescope.jobs import kinds
from fusescope.jobs.cluster import certificates
from fusescope.jobs.process import stopped
from fusescope.jobs.process.gpu_lock import Ticket
from fusescope.jobs.process.launch import launch, not_started
from fusescope.jobs.process.warm_parent import warm_up
from fusescope.jobs.spec.cluster import local_device, parse
from fusescope.store import files, folder, library
from fusescope.store.live import signs

SPEC = Parameter("a spec", "object")
DEADLINE = Parameter("deadline_s", "float", None, "seconds", above=0)
_KILL_AFTER_S = 10.0  # time for a stopped worker that was resumed to end on its own

__all__ = ["begun", "cancel", "cancelling", "queue", "resume", "submit", "validate", "wait", "warm_up"]


def validate(kind: str, spec: dict) -> dict:
    """The complete spec; ValueError: the rule, the value given, what is supported.

    ``deadline_s`` in any spec limits the whole job (seconds); each kind names its other keys.
    """
    spec = SPEC.check(spec)
    limit = spec.pop("deadline_s", None)
    whole = kinds.load(kind).validate(spec)
    return whole if limit is None else whole | {"deadline_s": DEADLINE.check(limit)}


def submit(kind: str, spec: dict, title: str = "") -> str:
    """Start a job and return its run id at once; the job outlives its submitter.

    ValueError for a bad spec and for a cluster whose certificates are not here, RunError where the run folder
    cannot be made or no process can be started.
    """
    spec = validate(kind, spec)
    if spec.get("cluster"):
        certificates.check(parse(spec["cluster"]))
    path = folder.create(kind, spec, title)
    lock = files.take_lock(path, wait_s=1.0)
    if lock is None:
        raise RunError(f"{path.name} was taken by another worker in the moment it was made")
    try:
        _start(path, lock)
    except RunError:
        if folder.read(path).status == "queued":  # not even the reason could be written
            shutil.rmtree(path, ignore_errors=True)
        raise
    return path.name


def resume(run_id: str, trust: bool = False) -> str:
    """Go on with a run that was interrupted, cancelled or failed: what has a record is not measured again.

    trust: the files that an imported run names may be run and read. ValueError for a run that is live or done
    or lacks raw samples only (``core.foreign.code.Untrusted`` for one whose files are not trusted), RunError
    for a recorded one or one that cannot be read.
    """
    path = library.find(run_id)
    if folder.is_recorded(path):
        raise RunError(f"{path.name} is a recorded run and read-only")
    run = folder.read(path)
    if run.status == "done":
        raise ValueError(f"{run.id} is done; submit a new run to measure it again")
    if run.status == "incomplete" and not folder.lacks_records(path):
        raise ValueError(f"{run.id} lacks raw samples alone, which come with records; submit a new run")
    code.check(run, trust=trust)
    lock = files.take_lock(path, wait_s=1.0)
    if lock is None:
        raise ValueError(f"{run.id} is {run.status} and needs no resuming")
    _start(path, lock)
    return run.id


def _start(path: Path, lock: int) -> None:
    """Queue a run whose folder's lock is held and start its worker; the lock and the ticket are the worker's
    then. What goes wrong is the run's reason at once."""
    ticket = None
    try:
        (path / "cancel").unlink(missing_ok=True)
        with contextlib.closing(folder.Writer(path, os.dup(lock))) as writer:
            writer.launched()
        ticket = _ticket(path)
        launch(path, lock, ticket)
    except OSError as e:
        why = not_started(path, lock, e)
        if ticket:
            ticket.close()
        raise RunError(f"{path.name}: {why}") from e
    finally:
        os.close(lock)
    if ticket:
        ticket.let_go()


def _ticket(path: Path) -> Ticket | None:
    """The place in the queue of the run's device as of now, so that jobs run in the order in which they were
    submitted; None where it needs no device, or none can be named yet: its worker queues up then."""
    run = folder.read(path)
    kind = kinds.load(run.kind)
    try:
        spec = kind.validate({k: v for k, v in run.spec.items() if k != "deadline_s"})
        device = local_device(spec, kind.device(spec))
        gpu = environment.gpu_of(device) if device else None
        name = gpu["uuid"] if gpu else device
        return Ticket(name, path.name) if name else None
    except (OSError, ValueError):
        return None


def cancel(run_id: str) -> None:
    """Ask a run to stop; its records stay. Nothing happens to a run that has ended.

    A worker that does not respond is woken up; one that was asked before, and still gives no sign, is killed.
    """
    path = library.find(run_id)
    if not folder.read(path).live:
        return
    asked = path / "cancel"
    since = asked.stat().st_mtime if asked.exists() else None
    if since is None:
        folder.request_cancel(path)
    if signs.silence(path):
        stopped.end(path) if since and time.time() - since > _KILL_AFTER_S else stopped.wake(path)


def cancelling(run_id: str) -> bool:
    """Whether a stop was requested of a run that is live."""
    return folder.cancelling(library.find(run_id))


def wait(run_id: str, timeout_s: float | None = None) -> Run:
    """The run once it has ended, or as it stands when the time (seconds) is over; look at ``live``."""
    path = library.find(run_id)
    end = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        run = folder.read(path)
        if not run.live or (end is not None and time.monotonic() >= end):
            return run
        time.sleep(0.05)


def begun(run_id: str) -> float | None:
    """When a running job got its device, in Unix seconds; of a resumed one, when it was resumed. None before,
    and where it cannot be read."""
    return _later(run_id, "running", "started")


def asked(run_id: str) -> float | None:
    """When a queued job was submitted, or resumed, in Unix seconds; None as of ``begun``."""
    return _later(run_id, "queued", "created")


def _later(run_id: str, status: str, moment: str) -> float | None:
    """The later of a moment and the launch of a run that has this status."""
    try:
        data = files.read_json(library.find(run_id) / "run.json")
    except (RunError, ValueError):
        return None
    times = [data.get(moment), data.get("launched") or 0.0]
    known = data.get("status") == status and all(isinstance(t, int | float) for t in times)
    return max(times) if known else None


def queue() -> list[dict]:
    """Live runs, running first, then by place: {"id", "kind", "title", "status", "place", "device", "lock",
    "progress"}.

    place: 0 = runs, n = n jobs go before it on its device, None = it is starting. device: "cpu", "cuda:0",
    None = none or not known yet; lock: what serialises it among all users of the machine, "cpu" or the GPU's
    UUID.
    """
    found = []
    for marker in signs.markers(paths.profiles()):
        path = paths.profiles() / marker.name
        try:
            run = folder.read(path)
            place = files.read_json(path / "run.json").get("queue") or {}
        except RunError:
            if not path.is_dir():
                _forget(marker)
            continue
        if not run.live:
            _forget(marker)
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


def _forget(marker: Path) -> None:
    """Remove a marker of a run that is not live; an odd one, or one that may only be read, does no harm."""
    with contextlib.suppress(OSError):
        marker.unlink(missing_ok=True)
