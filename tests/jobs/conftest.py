"""Jobs for tests: real processes, in folders of their own, with kinds out of kinds_for_tests/."""

from __future__ import annotations

import pytest
from jobs_tools import KINDS

from tests.faults.processes import end_warm_parents


@pytest.fixture
def home(tmp_path, monkeypatch, runtime):
    """A profiles/ folder for this test."""
    profiles = tmp_path / "profiles"
    monkeypatch.setenv("FUSESCOPE_PROFILES", str(profiles))
    monkeypatch.setenv("FUSESCOPE_RUNTIME", str(runtime))
    monkeypatch.setenv("FUSESCOPE_KINDS", str(KINDS))
    monkeypatch.setenv("FUSESCOPE_CANCEL_GRACE_S", "0.4")
    return profiles


@pytest.fixture
def own_runtime(home, tmp_path, monkeypatch):
    """A runtime folder for this test alone: its warm parents are its own."""
    runtime = tmp_path / "runtime"
    monkeypatch.setenv("FUSESCOPE_RUNTIME", str(runtime))
    yield runtime
    end_warm_parents(runtime)


@pytest.fixture
def light(own_runtime, tmp_path, monkeypatch):
    """A torch that imports in no time, so that a test may start many parents."""
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake/torch.py").write_text("class cuda:\n    is_initialized = staticmethod(lambda: False)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"))
    return own_runtime
