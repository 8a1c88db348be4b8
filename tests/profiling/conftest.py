"""Job tests of this folder run in folders of their own, with one warm parent."""

from __future__ import annotations

import contextlib
import json
import os
import signal

import pytest

from fusescope.cli import main


@pytest.fixture(scope="session")
def shared_runtime(tmp_path_factory):
    runtime = tmp_path_factory.mktemp("profiling-runtime")
    yield runtime
    for state in runtime.glob("user-*/warm-*.json"):
        with contextlib.suppress(ProcessLookupError, ValueError, FileNotFoundError):
            os.kill(json.loads(state.read_text())["pid"], signal.SIGKILL)


@pytest.fixture
def home(tmp_path, monkeypatch, shared_runtime):
    """A profiles/ folder for this test."""
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    monkeypatch.setenv("FUSESCOPE_PROFILES", str(profiles))
    monkeypatch.setenv("FUSESCOPE_RUNTIME", str(shared_runtime))
    monkeypatch.setenv("FUSESCOPE_CANCEL_GRACE_S", "2")
    return profiles


@pytest.fixture
def call(capsys):
    """call(words…) -> (exit code, standard output, standard error) of a verb."""

    def run(*words):
        capsys.readouterr()
        code = main([str(w) for w in words])
        got = capsys.readouterr()
        return code, got.out, got.err

    return run
