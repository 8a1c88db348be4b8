"""Shared by all tests: runs and locks go to a folder of this test run; without a GPU, GPU tests skip."""

from __future__ import annotations

import gc
import os
import sys
from functools import cache
from zlib import crc32

import pytest

# Importing all tests makes some 700,000 objects that stay: not looked through while they grow, nor, once they
# are all there (pytest_collection_finish), by any later collection, which is 0.4 s each.
gc.disable()


@pytest.fixture(scope="session", autouse=True)
def runtime(tmp_path_factory):
    """No test writes into the checkout's profiles/, the machine's locks or what its estimates learn from.
    Gives the runtime folder of this process: with one for most tests, one warm parent imports torch."""
    from tests.faults.processes import end_warm_parents

    base = tmp_path_factory.mktemp("fusescope")
    os.environ["FUSESCOPE_PROFILES"] = str(base / "profiles")
    os.environ["FUSESCOPE_RUNTIME"] = str(base / "runtime")
    os.environ["FUSESCOPE_STAGE_TIMES"] = str(base / "stage_times.json")
    # A warm parent that a test started does not stay for hours, should nobody end it.
    os.environ.setdefault("FUSESCOPE_WARM_IDLE_S", "300")
    (base / "profiles").mkdir()
    yield base / "runtime"
    end_warm_parents(base / "runtime")


@pytest.fixture(autouse=True)
def own_seed(request):
    """A test draws the same numbers in every run, others than its neighbour: what fails once fails again."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(crc32(request.node.nodeid.encode()))


@pytest.fixture
def profiles(tmp_path, monkeypatch):
    """An empty profiles folder of this test alone."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    monkeypatch.setenv("FUSESCOPE_PROFILES", str(folder))
    return folder


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(config, items):
    _sampled(items)
    _one_skip_without_a_gpu(config, items)


def _sampled(items):
    """Of the cases of a test marked ``sample(count, *also)`` that many, evenly spread, stay, and those with
    the ids ``also``; the others are long."""
    cases: dict[str, list] = {}
    for item in items:
        if item.get_closest_marker("sample"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for found in cases.values():
        count, *also = found[0].get_closest_marker("sample").args
        kept = {i * len(found) // count for i in range(count)}
        for place, item in enumerate(found):
            if place not in kept and item.callspec.id not in also:
                item.add_marker(pytest.mark.long)


def _one_skip_without_a_gpu(config, items):
    """Without a GPU each GPU test is one skip that says how many cases it has, however many parameters."""
    gpu: dict[str, list] = {}
    for item in items:
        if item.get_closest_marker("gpu"):
            gpu.setdefault(item.nodeid.partition("[")[0], []).append(item)
    reason = _why_no_gpu() if gpu else None
    if not reason:
        return
    for first, *others in gpu.values():
        first.add_marker(pytest.mark.skip(reason=f"{reason} ({len(others) + 1} GPU cases)"))
    dropped = {item for _, *others in gpu.values() for item in others}
    items[:] = [item for item in items if item not in dropped]
    config.hook.pytest_deselected(items=list(dropped))


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@cache
def _why_no_gpu() -> str | None:
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is a CPU build"
    return None if torch.cuda.is_available() else "torch sees no CUDA device"
