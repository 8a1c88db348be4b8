"""Waiting for what real processes do, with generous limits that only say "never"."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest


def until(condition: Callable, what: str, seconds: float = 30.0):
    """The condition's first true value; fails the test when it stays false for a generous while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.01)
    pytest.fail(f"waited {seconds:g} s in vain for: {what}")


def worker_pid(path: Path) -> int:
    """The process that holds a run folder, from the kernel's own list of locks."""
    inode = path.stat().st_ino

    def search():
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if "FLOCK" in fields and "WRITE" in fields and fields[5].endswith(f":{inode}") and "->" not in fields:
                return int(fields[4])
        return None

    return until(search, "a process that holds the run folder")
