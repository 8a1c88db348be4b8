"""Models of these tests are tiny: threads would only wait for each other on a loaded machine."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from fusescope import models
from fusescope.core.reporter import Collect
from fusescope.jobs.kinds import model as kind
from tests.models.tiny_models import QUICK, SIZES


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def cpu_kernels():
    """The CPU library, built and loaded."""
    from fusescope import kernels

    kernels.load("cpu")


@pytest.fixture
def measured(monkeypatch):
    """measured(name, modes, **case) -> the reporter, on a device of absurd speed, so that the alarm rests."""
    from fusescope.measure import compare, model
    from fusescope.measure.device import ceilings

    figures = {
        "copy_gbps": 1e9,
        "read_gbps": 1e9,
        "l2_gbps": 1e9,
        "matrix_tflops": {"float32": 1e3},
        "vector_tflops": {"float32": 1e9},
    }
    monkeypatch.setattr(ceilings, "measure", lambda device, dtypes, refresh=False: dict(figures))

    ticks = itertools.count()  # rounds by a clock of their own, however loaded the machine is
    monkeypatch.setattr(compare, "time", SimpleNamespace(monotonic=lambda: 0.002 * next(ticks)))

    def run(name, impls, **asked):
        spec = {
            "op": models.op(name),
            "impls": impls,
            "cases": [SIZES | {"seq": 17} | asked],
            "device": "cpu",
        } | QUICK
        reporter = Collect()
        model.run(kind.validate(spec), reporter)
        return reporter

    return run
