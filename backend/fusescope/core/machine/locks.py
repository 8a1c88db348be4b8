"""Waiting for a lock on a file or folder (flock), which ends with its last descriptor: no dead process keeps
one."""

from __future__ import annotations

import fcntl
import time

_POLL_S = 0.005


def take(fd: int, wait_s: float = 0.0) -> bool:
    """Take the exclusive lock, waiting at most so long; False where another descriptor has it all the time.
    OSError where the file system has no locks."""
    end = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(_POLL_S)
