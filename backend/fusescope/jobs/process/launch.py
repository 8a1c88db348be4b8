"""Starting a worker: through the warm parent where that works, from a cold interpreter where it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fusescope.core import paths
from fusescope.jobs.process import warm_parent
from fusescope.jobs.process.gpu_lock import Ticket


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
        warm_parent.ask(request | {"arguments": arguments}, descriptors)
    except Exception as e:  # a parent only saves time: whatever keeps it from working, the job starts
        note = f"started from a cold interpreter: {' '.join(str(e).split()) or type(e).__name__}"
        start_cold(run, descriptors, [*arguments, "--note", note])


def start_cold(run: Path, descriptors: list[int], arguments: list[str]) -> None:
    """A worker of its own interpreter, in a session of its own; its errors go to the run's log."""
    names = ("--lock-fd", "--ticket-fd")
    words = [word for name, fd in zip(names, descriptors) for word in (name, str(fd))]
    env = os.environ | {"PYTHONPATH": paths.python_path()}
    with open(run / "log.txt", "ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "fusescope.jobs.worker", str(run), *words, *arguments],
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
