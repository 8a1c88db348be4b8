"""The CUDA kernels' own sources on the CPU, thread for thread: their index arithmetic without a GPU."""

import json
import os
import subprocess
import sys

import pytest

from backend.core import paths
from tests.attention import emulated_attention


@pytest.mark.parametrize("copies", ("late", "early"))
def test_cuda_kernels_emulated(copies):
    done = subprocess.run(
        [sys.executable, "-m", "tests.attention.emulated_attention"],
        cwd=paths.ROOT,
        env=os.environ | {"EMULATED_COPIES": copies},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(results) == len(emulated_attention.KERNELS) * len(emulated_attention.CASES)
    assert [r for r in results if r["wrong"]] == []
