"""Finding the modules of a room by name: one file there is one thing, and a file that lacks a part is
named."""

from __future__ import annotations

import importlib
import os
import pkgutil
from functools import lru_cache
from types import ModuleType


def module_names(package: ModuleType, skip: tuple[str, ...] = ()) -> list[str]:
    """Names of the public modules and sub-packages directly in a package, sorted; ``_private`` and skipped
    ones left out."""
    folders = tuple((path, os.stat(path).st_mtime_ns) for path in package.__path__)
    return [name for name in _public(folders) if name not in skip]


@lru_cache(maxsize=64)
def _public(folders: tuple[tuple[str, int], ...]) -> list[str]:
    """Of (folder, time of its last change), so that a file put there is seen by the next call."""
    return sorted(
        m.name for m in pkgutil.iter_modules([path for path, _ in folders]) if not m.name.startswith("_")
    )


def load_part(
    package: ModuleType, name: str, parts: tuple[str, ...], what: str, skip: tuple[str, ...] = ()
) -> ModuleType:
    """Import ``package.name`` and check that it has every named part.

    Raises ValueError for an unknown name (listing the known ones) and TypeError naming the file and the parts
    it lacks.
    """
    known = module_names(package, skip)
    if name not in known:
        raise ValueError(f"unknown {what} {name!r}; known: {', '.join(known)}")
    module = importlib.import_module(f"{package.__name__}.{name}")
    missing = [p for p in parts if not hasattr(module, p)]
    if missing:
        raise TypeError(f"{module.__file__}: this {what} lacks {', '.join(missing)}")
    return module
