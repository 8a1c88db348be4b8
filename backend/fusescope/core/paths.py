"""Where things lie on disk. Every location can be moved by an environment variable, so tests and several
checkouts coexist; one that is set to nothing counts as not set. Locks and sockets are in
``core.machine.runtime``."""

from __future__ import annotations

import os
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
    return Path(os.environ.get("FUSESCOPE_CUDA") or ROOT / "cuda")


def profiles() -> Path:
    """The folder of run folders (FUSESCOPE_PROFILES, default profiles/ of the checkout, else in the user's
    data folder)."""
    default = CHECKOUT / "profiles" if CHECKOUT else user_folder("XDG_DATA_HOME", ".local/share") / "profiles"
    return Path(os.environ.get("FUSESCOPE_PROFILES") or default)


def build_cache() -> Path:
    """Where objects and libraries are kept, by content hash (FUSESCOPE_BUILD, default .build/ of the
    checkout, else in the user's cache folder)."""
    default = CHECKOUT / ".build" if CHECKOUT else user_folder("XDG_CACHE_HOME", ".cache") / "build"
    return Path(os.environ.get("FUSESCOPE_BUILD") or default)


def python_path(*more: Path | str) -> str:
    """PYTHONPATH for a child process that imports fusescope: this package's folder, what is set already,
    ``more``."""
    return os.pathsep.join(filter(None, [str(IMPORT_ROOT), os.environ.get("PYTHONPATH"), *map(str, more)]))


def user_folder(variable: str, default: str) -> Path:
    """The user's folder of a kind (XDG base directories; a relative value is ignored, as the specification
    says)."""
    given = os.environ.get(variable, "")
    return (Path(given) if os.path.isabs(given) else Path.home() / default) / "fusescope"
