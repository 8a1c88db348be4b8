"""Finding the modules of a room by name: one file there is one thing, and a file that lacks a part is
named."""

from __future__ import annotations

import difflib
import importlib
import os
import pkgutil
from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType

_FEW = 6  # names that are told all


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

    Raises ValueError for an unknown name (with those it may have meant) and TypeError naming the file and
    the parts it lacks.
    """
    known = module_names(package, skip)
    if name not in known:
        raise ValueError(f"unknown {what} {name!r}; {meant(name, known)}")
    module = importlib.import_module(f"{package.__name__}.{name}")
    missing = [p for p in parts if not hasattr(module, p)]
    if missing:
        raise TypeError(f"{module.__file__}: this {what} lacks {', '.join(missing)}")
    return module


def meant(word: str, known: Sequence[str]) -> str:
    """What a word that is not known may have meant: of many those like it, if any is; else all."""
    near = difflib.get_close_matches(word, known, 3) if len(known) > _FEW else ()
    return f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
