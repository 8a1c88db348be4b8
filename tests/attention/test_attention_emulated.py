"""The CUDA kernels' own sources on the CPU, thread for thread: their index arithmetic without a GPU."""

import pytest

from tests.attention import emulated_attention, emulation


@pytest.mark.parametrize("copies", ("late", "early"))
def test_cuda_kernels_emulated(copies):
    results = emulation.results("emulated_attention", EMULATED_COPIES=copies)
    assert len(results) == len(emulated_attention.KERNELS) * len(emulated_attention.CASES)
    assert [r for r in results if r["wrong"]] == []
