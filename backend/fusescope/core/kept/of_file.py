"""What was made from a file, kept as long as the file stays as it is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

from fusescope.core.kept.bounded_cache import BoundedCache

V = TypeVar("V")

_FRESH_NS = 2_000_000_000
_kept: BoundedCache[object] = BoundedCache(4096)


def kept(path: str, make: Callable[[str], V]) -> V:
    """``make(path)``, or what it gave before where inode, size and both times of the file are the same.

    A file changed within the last two seconds is read again each time: its next change may leave size and
    times as they are, because file systems count in steps of some milliseconds. make: a function of the file
    alone, defined once in its module; what it raises is raised, OSError where there is no file too.
    """
    facts = os.stat(path)
    changed = max(facts.st_mtime_ns, facts.st_ctime_ns)
    if time.time_ns() - changed < _FRESH_NS:
        return make(path)
    key = make, path, facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns
    return _kept.get_or_make(key, lambda: make(path))  # type: ignore[return-value]
