"""One local cluster of two workers for all tests of a file: processes, which may be killed and come
back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fusescope.core.reporter import Collect
from fusescope.jobs.cluster import deploy
from fusescope.jobs.spec.cluster import parse

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def client():
    """Ends with its file: idle workers and their scheduler take 4 % of a core while they are there."""
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    patch.syspath_prepend(str(HERE))
    try:
        with deploy.client(parse("local:2"), "cpu") as found:
            yield found
    finally:
        patch.undo()


class Listening(Collect):
    """Wants to stop once it has so many records."""

    stop_after = None

    def record(self, record):
        super().record(record)
        self.cancelled = self.stop_after is not None and len(self.records) >= self.stop_after


@pytest.fixture
def reporter():
    return Listening()
