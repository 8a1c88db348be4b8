"""Temporary folders that live as long as the process that made them, also where it is killed.

The process holds a flock on its folder, which the system drops with it. Whoever starts or ends a job removes
the folders of this user that nobody holds; a process id would not do, because ids are used again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

CLUSTER = "fusescope-dask-"
RANKS = "fusescope-ranks-"
_LONGEST = 60  # of the folder's parent: the name of a Unix socket has at most 107 bytes
_LOOK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def folder(prefix: str) -> Iterator[Path]:
    """A new folder, CLUSTER or RANKS and a random end, removed when the block ends; what killed processes
    left is removed first. OSError where none can be made."""
    tidy()
    home, held = _made(prefix)
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)
        os.close(held)


def tidy() -> None:
    """Remove the folders whose process is gone, of this user alone."""
    for prefix in (CLUSTER, RANKS):
        for home in Path(_parent()).glob(f"{prefix}*"):
            with contextlib.suppress(OSError):
                _remove(home)


def _remove(home: Path) -> None:
    """Remove a folder that is this user's and that nobody holds; OSError (BlockingIOError) else."""
    about = home.lstat()
    if about.st_uid != os.getuid() or not stat.S_ISDIR(about.st_mode):
        return
    found = os.open(home, _LOOK)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(home, ignore_errors=True)
    finally:
        os.close(found)


def _made(prefix: str) -> tuple[Path, int]:
    while True:
        home = Path(tempfile.mkdtemp(prefix=prefix, dir=_parent()))
        with contextlib.suppress(FileNotFoundError):  # tidied away before it was held
            held = os.open(home, _LOOK)
            fcntl.flock(held, fcntl.LOCK_EX)
            if home.exists():
                return home, held
            os.close(held)


def _parent() -> str:
    """The system's temporary folder, or one whose name is short enough for a socket in it."""
    return tempfile.gettempdir() if len(tempfile.gettempdir()) < _LONGEST else "/tmp"
