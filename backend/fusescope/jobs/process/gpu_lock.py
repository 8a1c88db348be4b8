"""One job at a time on a device, first come, first served: a lock file for each GPU (by UUID) and one for the
CPU in the machine's shared folder, and a queue of tickets.

A ticket is an empty file, locked as long as its job lives; its name says when the job was submitted, by which
process and for which run, its owner says by which user. The oldest living ticket is next. Nothing is ever
written into a file here, so nothing can be overwritten through one; ``core.machine.runtime`` says what is
trusted.
Any user can hold a lock, or a ticket, for as long as he likes: users of one machine have to agree.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fusescope.core import whole_files
from fusescope.core.machine import runtime

_TICKET = re.compile(
    r"(?P<since>\d{20})-(?P<pid>\d{1,10})-(?P<run>[\w.-]{1,120})\.(?P<state>waits|has)", re.ASCII
)
_DEVICE = re.compile(r"[\w.-]{1,100}", re.ASCII)
_YOUNG_S = 5.0  # a ticket younger than this may not be locked yet


def queued(device: str, ahead: int) -> str:
    """What a job says that waits for its device: "queued on cuda:0, 2 ahead"."""
    return f"queued on {device}, {ahead} ahead"


class Ticket:
    """A place in the queue of one device, from birth to ``close``; ``advance`` tries to get the device.

    device: "cpu" or the GPU's UUID. run: the run's id, shown to those who wait. warning: a sentence where
    other users are not waited for, else None. OSError where no folder is usable for it.
    """

    def __init__(self, device: str, run: str):
        if not _DEVICE.fullmatch(device):
            raise ValueError(f"a device's lock is named by letters, digits, _, . and -, not {device!r}")
        self.device, self.run = device, run
        self.name = f"{time.time_ns():020d}-{os.getpid()}-{re.sub(r'[^A-Za-z0-9_.-]', '_', run)[:120]}.waits"
        self._lock_fd: int | None = None
        self._ticket_fd: int | None = None
        self._queue_up()

    @classmethod
    def adopt(cls, ticket_fd: int, text: str) -> Ticket:
        """The ticket that another process handed over: what ``handed_over`` gave there."""
        facts = json.loads(text)
        ticket = cls.__new__(cls)
        ticket.device, ticket.run, ticket.name = facts["device"], facts["run"], facts["name"]
        ticket.home, ticket.warning = Path(facts["home"]), facts["warning"]
        ticket._ticket_fd, ticket._lock_fd = ticket_fd, None
        return ticket

    def handed_over(self) -> tuple[int, str]:
        """The descriptor and the text from which another process makes the very same ticket."""
        facts = {"device": self.device, "run": self.run, "name": self.name}
        return self._ticket_fd, json.dumps(facts | {"home": str(self.home), "warning": self.warning})

    def let_go(self) -> None:
        """Close this process's descriptor of a ticket that another process has now."""
        os.close(self._ticket_fd)
        self._ticket_fd = None

    @property
    def held(self) -> bool:
        return self._lock_fd is not None

    def advance(self) -> int:
        """My place: 0 = the device is mine from now until ``close``; n = n jobs go before me (the running one
        counted)."""
        if self.held:
            return 0
        try:
            return self._try()
        except OSError:  # the folder changed meanwhile
            self._drop_ticket()
            self._queue_up()
            return self._try()

    def close(self) -> None:
        """Leave the queue, or give the device back."""
        self._drop_ticket()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def descriptors(self) -> list[int]:
        return [fd for fd in (self._ticket_fd, self._lock_fd) if fd is not None]

    def _queue_up(self) -> None:
        """A ticket in the first folder that can be trusted and written."""
        self.warning = None
        for home in _homes():
            try:
                with runtime.opened(home) as base, _queue(home, self.device) as queue:
                    os.close(_open_lock(base, self.device))
                    self._put_ticket(queue)
            except OSError as e:
                refused = runtime.reason(e)
                self.warning = (
                    f"jobs of other users are not waited for, because {home} cannot be used: {refused}; "
                    "remove it, or set FUSESCOPE_RUNTIME to one folder for all users"
                )
            else:
                self.home = home
                return
        raise OSError(f"no folder for the queue of {self.device} is usable: {refused}")

    def _put_ticket(self, queue: int) -> None:
        self._ticket_fd = runtime.new_file(self.name, queue)
        for _attempt in range(100):
            with contextlib.suppress(BlockingIOError):  # another process is looking at it right now
                return fcntl.flock(self._ticket_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            time.sleep(0.001)
        os.close(self._ticket_fd)
        self._ticket_fd = None
        raise PermissionError(f"another user holds the ticket {self.name}")

    def _try(self) -> int:
        with runtime.opened(self.home) as base, _queue(self.home, self.device) as queue:
            if not _is_named(self._ticket_fd, self.name, queue):  # the folder was cleaned up
                os.close(self._ticket_fd)
                self._put_ticket(queue)
            others = (t for t in _tickets(queue) if t.name != self.name and _lives(t.name, queue))
            ahead = sum(t.state == "has" or t.name < self.name for t in others)
            if ahead:
                return ahead
            lock = _open_lock(base, self.device)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not _is_named(lock, f"{self.device}.lock", base):
                    raise BlockingIOError
            except BlockingIOError:
                os.close(lock)
                return 1
            self._lock_fd = lock
            self._say_held(queue)
            return 0

    def _say_held(self, queue: int) -> None:
        """Show those who wait who has the device; the lock counts, whether or not this works."""
        held = f"{self.name[:20]}-{os.getpid()}-{_TICKET.fullmatch(self.name)['run']}.has"
        with contextlib.suppress(OSError):
            os.utime(self._ticket_fd)
            os.rename(self.name, held, src_dir_fd=queue, dst_dir_fd=queue)
            self.name = held

    def _drop_ticket(self) -> None:
        if self._ticket_fd is None:
            return
        with contextlib.suppress(OSError), _queue(self.home, self.device) as queue:
            if _is_named(self._ticket_fd, self.name, queue):
                os.unlink(self.name, dir_fd=queue)
        os.close(self._ticket_fd)
        self._ticket_fd = None


def holder(device: str) -> dict | None:
    """Who has the device now: {"pid", "user", "run", "since"}, or None where it is free."""
    for home in _homes():
        with contextlib.suppress(OSError), runtime.opened(home) as base, _queue(home, device) as queue:
            for ticket in _tickets(queue):
                if ticket.state == "has" and (facts := _lives(ticket.name, queue)):
                    since = facts.st_mtime
                    return {"pid": ticket.pid, "user": user(facts.st_uid), "run": ticket.run, "since": since}
            if whole_files.is_locked(_open_lock(base, device)):
                return {"pid": None, "user": None, "run": None, "since": None}
    return None


class _Ticket(NamedTuple):
    name: str
    pid: int
    run: str
    state: str


def _homes() -> Iterator[Path]:
    yield runtime.shared()
    with contextlib.suppress(OSError):
        yield runtime.private()


def _queue(home: Path, device: str) -> contextlib.AbstractContextManager[int]:
    return runtime.opened(home, f"{device}.queue")


def _tickets(queue: int) -> list[_Ticket]:
    """Files that have a ticket's name, oldest first."""
    found = [m for name in sorted(os.listdir(queue)) if (m := _TICKET.fullmatch(name))]
    return [_Ticket(m[0], int(m["pid"]), m["run"], m["state"]) for m in found]


def _lives(name: str, queue: int) -> os.stat_result | None:
    """The facts of a ticket whose lock a living process holds, else None; one of this user's own, whose
    process died, is removed on the way."""
    try:
        fd = runtime.open_file(name, queue)
    except OSError:
        return None
    facts = os.fstat(fd)
    if whole_files.is_locked(os.dup(fd)):
        os.close(fd)
        return facts
    left = facts.st_uid == os.getuid() and not facts.st_size and time.time() - facts.st_mtime > _YOUNG_S
    with contextlib.suppress(OSError):
        if left and _is_named(fd, name, queue):
            os.unlink(name, dir_fd=queue)
    os.close(fd)
    return None


def _is_named(fd: int, name: str, folder: int) -> bool:
    """Whether the file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _open_lock(base: int, device: str) -> int:
    """The device's lock file, which all users may read and so lock."""
    name = f"{device}.lock"
    while True:
        with contextlib.suppress(FileNotFoundError):
            return runtime.open_file(name, base)
        with contextlib.suppress(FileExistsError):
            return runtime.new_file(name, base)


def user(uid: int) -> str:
    """The name of a user as ``holder`` gives it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
