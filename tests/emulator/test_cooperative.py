"""What the launch of a grid whose blocks all run at the same time says where CUDA refuses it: callers compute
otherwise for "unsupported", and pass any other error on."""

import subprocess
from pathlib import Path

import pytest

from tests import emulator

SOURCE = Path(__file__).with_name("cooperative_launch.cpp")


@pytest.mark.parametrize(
    "status, says",
    [
        (0, ""),  # cudaSuccess
        (1, "error"),  # cudaErrorInvalidValue
        (720, "unsupported: multiprocessors that do not hold one block each at the same time"),
        (801, "unsupported: a device without cooperative launches"),
    ],
)
def test_a_refused_launch(status, says, monkeypatch):
    monkeypatch.delenv("EMULATED_SMS", raising=False)
    done = subprocess.run([emulator.program(SOURCE), str(status)], capture_output=True, text=True, check=True)
    why, pending = done.stdout.split("\n")[:2]
    assert why == says
    assert pending == "0", "the next launch would report the error"
