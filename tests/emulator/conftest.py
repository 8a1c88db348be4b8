"""The process that the emulated libraries of a test file are loaded in."""

import pytest

from tests.emulator.run import Server


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running
