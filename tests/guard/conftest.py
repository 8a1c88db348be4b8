"""Servers for tests of the door."""

from __future__ import annotations

import pytest
from live_server import Live


@pytest.fixture(scope="module")
def live(tmp_path_factory, runtime):
    """One server for a file."""
    server = Live(tmp_path_factory.mktemp("live"), FUSESCOPE_RUNTIME=str(runtime))
    yield server
    server.stop()


@pytest.fixture
def start(tmp_path, runtime):
    """start(*arguments, **environment) → another server, stopped at the end."""
    started = []

    def make(*arguments: str, **further) -> Live:
        home = tmp_path / str(len(started))
        home.mkdir()
        started.append(Live(home, *arguments, **{"FUSESCOPE_RUNTIME": str(runtime)} | further))
        return started[-1]

    yield make
    for server in started:
        server.stop()
