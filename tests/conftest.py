"""Shared by all tests: runs and locks go to a folder of this test run; GPU tests skip with a reason where
there is no GPU."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory):
    """No test writes into the checkout's profiles/ or into the machine's locks."""
    base = tmp_path_factory.mktemp("fusescope")
    os.environ["FUSESCOPE_PROFILES"] = str(base / "profiles")
    os.environ["FUSESCOPE_RUNTIME"] = str(base / "runtime")
    os.environ.setdefault(
        "FUSESCOPE_WARM_IDLE_S", "60"
    )  # a warm parent that a test started does not stay for hours
    (base / "profiles").mkdir()
    yield


@pytest.fixture
def profiles(tmp_path, monkeypatch):
    """An empty profiles folder of this test alone."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    monkeypatch.setenv("FUSESCOPE_PROFILES", str(folder))
    return folder


def pytest_collection_modifyitems(items):
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu:
        return
    reason = _why_no_gpu()
    if reason:
        for item in gpu:
            item.add_marker(pytest.mark.skip(reason=reason))


def _why_no_gpu() -> str | None:
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is a CPU build"
    return None if torch.cuda.is_available() else "torch sees no CUDA device"
