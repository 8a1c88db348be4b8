"""Fixtures of the measuring tests: quick settings, and ceilings that no timing of a loaded test machine can
pass or fail by chance."""

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fusescope.core.records import BenchSpec
from fusescope.core.reporter import Collect
from fusescope.measure import bench, compare
from fusescope.measure.device import ceilings
from fusescope.measure.timing.timer import Flush

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def one_thread():
    """Tensors of these tests are small: threads would only wait for each other on a loaded machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def clock(monkeypatch):
    """Rounds are counted by a clock that moves 2 ms at each look, however loaded the machine is; samples are
    taken by the real one."""
    ticks = itertools.count()
    monkeypatch.setattr(compare, "time", SimpleNamespace(monotonic=lambda: 0.002 * next(ticks)))


@pytest.fixture
def known_ceilings(monkeypatch):
    """A device of absurd speed, so that the alarm rests; tests of the alarm change the figures."""
    figures = {
        "copy_gbps": 1e9,
        "read_gbps": 1e9,
        "l2_gbps": 1e9,
        "matrix_tflops": {"float32": 1e9},
        "vector_tflops": {"float32": 1e9},
    }
    monkeypatch.setattr(ceilings, "measure", lambda device, dtypes, refresh=False: dict(figures))
    return figures


@pytest.fixture
def wrong():
    """The name of an implementation in wrong_add.py, as the command line takes it."""
    return lambda function: f"{HERE / 'wrong_add.py'}:{function}"


@pytest.fixture
def quick(known_ceilings, clock, monkeypatch):
    """bench(impls, baseline="eager", **changes) -> the reporter, on tensor add with 1000 elements, short
    sampling and a small cache."""
    monkeypatch.setattr(bench, "Flush", lambda device, size: Flush(device, 1 << 20))

    def run(impls, baseline="eager", reporter=None, **changes):
        settings = {
            "cases": ({"n": 1000},),
            "cache": "warm",
            "budget_s": 0.2,
            "min_s": 0.01,
            "min_samples": 5,
        } | changes
        reporter = reporter or Collect()
        bench.run(BenchSpec(op="add", impls=tuple(impls), baseline=baseline, **settings), reporter)
        return reporter

    return run
