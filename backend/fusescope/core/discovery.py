"""Finding the modules of a room by name: one file there is one thing, and a file that lacks a part is
named."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def module_names(package: ModuleType, skip: tuple[str, ...] = ()) -> list[str]:
    """Names of the public modules and sub-packages directly in a package, sorted; ``_private`` and skipped
    ones left out."""
    return sorted(
        m.name
        for m in pkgutil.iter_modules(package.__path__)
        if not m.name.startswith("_") and m.name not in skip
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
