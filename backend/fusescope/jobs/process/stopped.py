"""A worker that gives no sign: woken up, or ended with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from fusescope.core.errors import RunError
from fusescope.store import files


def wake(run: Path) -> None:
    """Resume a stopped worker, so that it sees the request."""
    _signal(run, signal.SIGCONT)


def end(run: Path) -> None:
    """Kill the worker of a run and whatever it started; its records stay."""
    _signal(run, signal.SIGKILL)


def _signal(run: Path, number: int) -> None:
    worker = _worker(run)
    if worker is None:
        return
    for pid in [worker, *_children(worker)]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number) if os.getpgid(pid) == pid else os.kill(pid, number)


def _worker(run: Path) -> int | None:
    """The process that run.json names, if it is one of ours that has the run's folder open: process numbers
    are used again."""
    try:
        said = files.read_json(run / "run.json").get("worker")
        pid, host = said["pid"], said["host"]
        if type(pid) is not int or pid <= 1 or host != os.uname().nodename:
            return None
        process, folder = Path(f"/proc/{pid}"), run.stat()
        if process.stat().st_uid != os.getuid():
            return None
        for fd in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                if os.path.samestat(fd.stat(), folder):
                    return pid
    except (RunError, OSError, KeyError, TypeError):
        pass
    return None


def _children(pid: int) -> list[int]:
    """All that a process started, as long as it lives."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    direct = [int(word) for word in text.split()]
    return direct + [one for child in direct for one in _children(child)]
