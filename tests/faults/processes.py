"""Processes on Linux: whose they are, and what they hold."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path


def children(pid: int) -> list[int]:
    """The processes that one forked and that are still there."""
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (OSError, ValueError):
        return []


def descendants(pid: int) -> list[int]:
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_mib(pid: int) -> float:
    """Memory in RAM that is not shared with files."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


def end_warm_parents(runtime: Path) -> None:
    """Kill the warm parents of a runtime folder, each by the process id that it wrote down."""
    for state in runtime.glob("user-*/warm-*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            pid = json.loads(state.read_text())["pid"]
            if b"/warm.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
