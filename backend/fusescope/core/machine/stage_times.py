"""How long the stages of earlier jobs took on this machine: what estimates learn from.

One small JSON file next to the built kernels, or where FUSESCOPE_STAGE_TIMES says: {key: seconds}, the key
used last at the end. Two jobs that end in the same moment may lose one's figures; the next job writes them
again.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path

from fusescope.core import paths, whole_files

_started: list[float] = []  # when the job of this process began, until it is read
_MOST = 5000  # keys; the ones that were not used for longest are dropped
_NEWEST = 0.6  # weight of the newest figure: caches warm up, kernels change


def read() -> dict[str, float]:
    """Seconds (or shares) by key; empty before the first job, or where the file is torn."""
    try:
        data = whole_files.read_object(_file())
        return {k: float(v) for k, v in data.items() if 0 <= float(v) < math.inf}
    except (ValueError, TypeError):
        return {}


def note(measured: Mapping[str, float]) -> None:
    """Remember what was measured: the geometric mean with what is known, the newest weighing more. A folder
    that cannot be written loses it."""
    past = read()
    for key, value in measured.items():
        before = past.pop(key, None)
        past[key] = value if not (before and value) else before ** (1 - _NEWEST) * value**_NEWEST
    kept = dict(list(past.items())[-_MOST:])
    text = json.dumps({k: float(f"{v:.4g}") for k, v in kept.items()}, indent=0)
    with contextlib.suppress(OSError):
        whole_files.replace(_file(), text)


def starts(at: float) -> None:
    """The job for which this process was started began at ``at`` (time.monotonic()); what it has waited for
    its device is no part of its start and was added."""
    _started[:] = [at]


def started() -> float | None:
    """When the job began, for the first who asks; None for later ones, and in a process that was not started
    for a job: how long that has run says nothing of starts."""
    return _started.pop() if _started else None


def _file() -> Path:
    return Path(os.environ.get("FUSESCOPE_STAGE_TIMES") or paths.build_cache() / "stage_times.json")
