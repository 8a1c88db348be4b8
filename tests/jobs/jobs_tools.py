"""Waiting for what real processes do, with generous limits that only say "never"."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

KINDS = Path(__file__).with_name("kinds_for_tests")


def until(condition: Callable, what: str, seconds: float = 120.0):
    """The condition's first true value; fails the test when it stays false for a generous while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.01)
    pytest.fail(f"waited {seconds:g} s in vain for: {what}")


def worker_pid(path: Path) -> int:
    """The worker process of a run, once it has signed run.json."""
    return until(lambda: json.loads((path / "run.json").read_text()).get("worker"), "the worker's signature")[
        "pid"
    ]


def state(pid: int) -> str | None:
    """The letter of a process's state (R, S, T stopped, Z ended …); None where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def ended(pid: int) -> bool:
    return state(pid) in (None, "Z")
