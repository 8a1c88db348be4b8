"""Where things lie on disk. Every location can be moved by an environment variable, so tests and several checkouts coexist."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The project's root: the folder that holds app.py, backend/ and cuda/."""


def cuda_sources() -> Path:
    """The folder of kernel families (FUSESCOPE_CUDA, default cuda/ in the root)."""
    return Path(os.environ.get("FUSESCOPE_CUDA", ROOT / "cuda"))


def profiles() -> Path:
    """The folder of run folders (FUSESCOPE_PROFILES, default profiles/ in the root)."""
    return Path(os.environ.get("FUSESCOPE_PROFILES", ROOT / "profiles"))


def build_cache() -> Path:
    """Where objects and libraries are kept, by content hash (FUSESCOPE_BUILD, default .build/ in the root)."""
    return Path(os.environ.get("FUSESCOPE_BUILD", ROOT / ".build"))


def runtime() -> Path:
    """The machine-wide folder for GPU locks, the same for every checkout, session and user of this machine.

    /run/lock where it is writable by all (Debian, Ubuntu), else the system's temporary folder;
    FUSESCOPE_RUNTIME moves it. Created with mode 1777 like /tmp, because its files are shared among users.
    """
    given = os.environ.get("FUSESCOPE_RUNTIME")
    base = Path(given) if given else _shared_base() / "fusescope"
    if not base.is_dir():
        base.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(PermissionError):  # somebody else created it in between; their mode stands
            base.chmod(0o1777)
    return base


def user_runtime() -> Path:
    """A folder of this user alone (mode 0700) for sockets and process state (FUSESCOPE_RUNTIME moves it too)."""
    base = runtime() / f"user-{os.getuid()}"
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    if base.stat().st_uid != os.getuid():
        raise PermissionError(f"{base} belongs to another user; set FUSESCOPE_RUNTIME to a folder of your own")
    return base


def _shared_base() -> Path:
    lock = Path("/run/lock")
    return lock if lock.is_dir() and os.access(lock, os.W_OK) else Path(tempfile.gettempdir())
