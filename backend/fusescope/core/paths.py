"""Where things lie on disk. Every location can be moved by an environment variable, so tests and several
checkouts coexist."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of the package fusescope, in a checkout or in site-packages."""

IMPORT_ROOT = PACKAGE.parent
"""What a child process needs on PYTHONPATH to import the very same package."""

CHECKOUT = PACKAGE.parents[1] if (PACKAGE.parents[1] / "app.py").is_file() else None
"""The project's checkout, which holds app.py, backend/ and cuda/; None where the package is installed from a
wheel."""

ROOT = CHECKOUT or PACKAGE
"""The folder that holds cuda/: the checkout, else the installed package."""


def cuda_sources() -> Path:
    """The folder of kernel families (FUSESCOPE_CUDA, default cuda/ of the checkout or the installed
    package)."""
    return Path(os.environ.get("FUSESCOPE_CUDA", ROOT / "cuda"))


def profiles() -> Path:
    """The folder of run folders (FUSESCOPE_PROFILES, default profiles/ of the checkout, else in the user's
    data folder)."""
    default = (
        CHECKOUT / "profiles" if CHECKOUT else _user_folder("XDG_DATA_HOME", ".local/share") / "profiles"
    )
    return Path(os.environ.get("FUSESCOPE_PROFILES", default))


def build_cache() -> Path:
    """Where objects and libraries are kept, by content hash (FUSESCOPE_BUILD, default .build/ of the
    checkout, else in the user's cache folder)."""
    default = CHECKOUT / ".build" if CHECKOUT else _user_folder("XDG_CACHE_HOME", ".cache") / "build"
    return Path(os.environ.get("FUSESCOPE_BUILD", default))


def python_path(*more: Path | str) -> str:
    """PYTHONPATH for a child process that imports fusescope: this package's folder, what is set already,
    ``more``."""
    return os.pathsep.join(filter(None, [str(IMPORT_ROOT), os.environ.get("PYTHONPATH"), *map(str, more)]))


def _user_folder(variable: str, default: str) -> Path:
    """The user's folder of a kind (XDG base directories; a relative value is ignored, as the specification
    says)."""
    given = os.environ.get(variable, "")
    return (Path(given) if os.path.isabs(given) else Path.home() / default) / "fusescope"


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
    """A folder of this user alone (mode 0700) for sockets and process state (FUSESCOPE_RUNTIME moves it
    too)."""
    base = runtime() / f"user-{os.getuid()}"
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    if base.stat().st_uid != os.getuid():
        raise PermissionError(
            f"{base} belongs to another user; set FUSESCOPE_RUNTIME to a folder of your own"
        )
    return base


def _shared_base() -> Path:
    lock = Path("/run/lock")
    return lock if lock.is_dir() and os.access(lock, os.W_OK) else Path(tempfile.gettempdir())
