"""Jobs for tests: real processes, in folders of their own, with kinds out of kinds_for_tests/."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest
from jobs_tools import KINDS


def stop_warm_parents(runtime: Path) -> None:
    """End the warm parents of a runtime folder, each by the process id it wrote down."""
    for state in runtime.glob("user-*/warm-*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            pid = json.loads(state.read_text())["pid"]
            if b"/warm.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def shared_runtime(tmp_path_factory):
    """One runtime folder for most tests, so that torch is imported by one warm parent only."""
    runtime = tmp_path_factory.mktemp("runtime")
    yield runtime
    stop_warm_parents(runtime)


@pytest.fixture
def home(tmp_path, monkeypatch, shared_runtime):
    """A profiles/ folder for this test."""
    profiles = tmp_path / "profiles"
    monkeypatch.setenv("FUSESCOPE_PROFILES", str(profiles))
    monkeypatch.setenv("FUSESCOPE_RUNTIME", str(shared_runtime))
    monkeypatch.setenv("FUSESCOPE_KINDS", str(KINDS))
    monkeypatch.setenv("FUSESCOPE_CANCEL_GRACE_S", "0.4")
    return profiles


@pytest.fixture
def own_runtime(home, tmp_path, monkeypatch):
    """A runtime folder for this test alone: its warm parents are its own."""
    runtime = tmp_path / "runtime"
    monkeypatch.setenv("FUSESCOPE_RUNTIME", str(runtime))
    yield runtime
    stop_warm_parents(runtime)
