"""Job tests of this folder run in profile folders of their own."""

from __future__ import annotations

import pytest

from fusescope.cli import main


@pytest.fixture
def home(tmp_path, monkeypatch, runtime):
    """A profiles/ folder for this test."""
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    monkeypatch.setenv("FUSESCOPE_PROFILES", str(profiles))
    monkeypatch.setenv("FUSESCOPE_RUNTIME", str(runtime))
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
