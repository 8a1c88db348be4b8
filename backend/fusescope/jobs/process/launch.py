"""Starting a worker: through the warm parent where that works, from a cold interpreter where it does not."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

from fusescope.core import paths
from fusescope.core.errors import RunError
from fusescope.jobs.process import warm_parent
from fusescope.jobs.process.gpu_lock import Ticket
from fusescope.store import folder
from fusescope.store.bounded import plain


def launch(run: Path, lock: int, ticket: Ticket | None) -> None:
    """Start the worker of a run folder and hand it the folder's lock and the run's place in the queue of its
    device, where it has one (the caller still closes its own descriptors). OSError where no process can be
    started at all."""
    run = run.resolve()
    descriptors, arguments = [lock], []
    if ticket is not None:
        ticket_fd, text = ticket.handed_over()
        descriptors.append(ticket_fd)
        arguments = ["--ticket", text]
    request = {"root": str(paths.IMPORT_ROOT), "run": str(run), "cwd": _here(), "env": dict(os.environ)}
    try:
        asked = warm_parent.ask(request | {"arguments": arguments}, descriptors)
    except Exception as e:  # a parent only saves time: the job starts without it too
        start_cold(run, descriptors, arguments, " ".join(str(e).split()) or type(e).__name__)
        return
    if asked:
        own = [os.dup(fd) for fd in descriptors]
        threading.Thread(target=_see_it_start, args=(asked, run, own, arguments), daemon=True).start()


def _see_it_start(
    asked: warm_parent.Request, run: Path, descriptors: list[int], arguments: list[str]
) -> None:
    """Beside whoever submitted, as long as that process lives: start the job cold where the parent dies
    before it has imported torch. The descriptors are this thread's own: they keep the run queued
    meanwhile."""
    try:
        if not asked.taken():
            start_cold(run, descriptors, arguments, "the warm parent ended while it imported torch")
    except OSError as e:
        with contextlib.suppress(RunError):
            not_started(run, descriptors[0], e)
    finally:
        for fd in descriptors:
            os.close(fd)


def not_started(run: Path, lock: int, error: OSError) -> str:
    """Say in a run, whose lock is held, why its worker could not be started; gives the sentence."""
    why = f"its worker could not be started: {error.strerror or error}"
    with contextlib.closing(folder.Writer(run, os.dup(lock))) as writer:
        writer.state("failed", why)
    return why


def start_cold(run: Path, descriptors: list[int], arguments: list[str], why: str) -> None:
    """A worker of its own interpreter, in a session of its own; its errors, and why, go to the run's log."""
    note = ["--note", f"started from a cold interpreter: {why}"]
    names = ("--lock-fd", "--ticket-fd")
    words = [word for name, fd in zip(names, descriptors) for word in (name, str(fd))]
    env = os.environ | {"PYTHONPATH": paths.python_path()}
    with open(plain.descriptor(run / "log.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "fusescope.jobs.worker", str(run), *words, *arguments, *note],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=descriptors,
            start_new_session=True,
        )


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed
        return "/"
