"""One job at a time on a device: a lock file a GPU (by UUID) in the machine's shared folder, one for the CPU,
and the queue.

The files are shared among users. Who waits has a ticket file, locked as long as he lives; the oldest living
ticket is next.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import time
from pathlib import Path

from fusescope.core import paths


class Ticket:
    """A place in the queue of one device, from birth to ``close``; ``advance`` tries to get the device
    itself.

    name: "cpu" or the GPU's UUID. run: the run's id, shown to those who wait.
    """

    def __init__(self, name: str, run: str):
        self._lock_path = paths.runtime() / f"{name}.lock"
        self._queue = paths.runtime() / f"{name}.queue"
        if not self._queue.is_dir():
            self._queue.mkdir(exist_ok=True)
            with contextlib.suppress(PermissionError):
                self._queue.chmod(0o1777)
        self._who = {"pid": os.getpid(), "user": _user(), "run": run, "since": time.time()}
        self._ticket = self._queue / f"{time.time_ns():020d}-{os.getpid()}"
        self._ticket_fd = os.open(self._ticket, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        fcntl.flock(self._ticket_fd, fcntl.LOCK_EX)
        os.write(self._ticket_fd, json.dumps(self._who).encode())
        self._lock_fd: int | None = None

    @property
    def held(self) -> bool:
        return self._lock_fd is not None

    def advance(self) -> int:
        """My place: 0 = the device is mine from now until ``close``; n = n jobs go before me (the running one
        counted)."""
        if self.held:
            return 0
        ahead = [t for t in _tickets(self._queue) if t.name < self._ticket.name and _is_held(t)]
        if not ahead:
            fd = _open_shared(self._lock_path)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return 1
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps(self._who | {"since": time.time()}).encode(), 0)
            self._lock_fd = fd
            self._drop_ticket()
            return 0
        return len(ahead) + _is_held(self._lock_path)

    def close(self) -> None:
        """Leave the queue, or give the device back."""
        self._drop_ticket()
        if self._lock_fd is not None:
            os.ftruncate(self._lock_fd, 0)
            os.close(self._lock_fd)
            self._lock_fd = None

    def descriptors(self) -> list[int]:
        return [fd for fd in (self._ticket_fd, self._lock_fd) if fd is not None]

    def _drop_ticket(self) -> None:
        if self._ticket_fd is not None:
            self._ticket.unlink(missing_ok=True)
            os.close(self._ticket_fd)
            self._ticket_fd = None


def holder(name: str) -> dict | None:
    """Who has the device now: {"pid", "user", "run", "since"}, or None where it is free."""
    path = paths.runtime() / f"{name}.lock"
    if not _is_held(path):
        return None
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {"pid": None, "user": None, "run": None, "since": None}


def _tickets(queue: Path) -> list[Path]:
    return sorted(queue.iterdir())


def _is_held(path: Path) -> bool:
    """Whether a living process holds the file's lock; a ticket whose owner died is cleared away on the
    way."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        with contextlib.suppress(OSError):  # another user's ticket stays; it is counted out all the same
            if path.parent.suffix == ".queue" and time.time() - path.stat().st_mtime > 5:
                path.unlink()
        return False
    finally:
        os.close(fd)


def _open_shared(path: Path) -> int:
    """Open a file that all users may lock. O_CREAT alone is refused for another's file in a sticky folder
    (fs.protected_regular), so it is only used where there is none."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, os.O_RDWR)
        with contextlib.suppress(FileExistsError):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(fd, 0o666)  # whatever the umask
            return fd


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
