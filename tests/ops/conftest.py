"""Tests of operators as functions run on the CPU, and again on CUDA where there is a GPU."""

import pytest


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    return request.param
