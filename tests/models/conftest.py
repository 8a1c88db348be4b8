"""Models of these tests are tiny: threads would only wait for each other on a loaded machine."""

import pytest
import torch


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
