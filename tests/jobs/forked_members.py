"""Measuring processes for tests that need none with an interpreter of its own: forked from one that has
imported torch, so that a test of crashes and stops does not import it six times."""

from __future__ import annotations

import multiprocessing
import os
import socket

from fusescope.core import paths

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["fusescope.jobs.process.member", "fusescope.jobs.kinds.bench", "fusescope.measure.bench"]
)


class _Forked:
    """What members.Member does with a Popen."""

    def __init__(self, kind: str, its: socket.socket):
        self._process = _FORKS.Process(target=_measure, args=(kind, its, dict(os.environ)))
        self._process.start()
        self.pid = self._process.pid

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int:
        self._process.join()
        return self._process.exitcode


def start(kind: str, its: socket.socket) -> _Forked:
    """In place of members.start; the first call starts what all are forked from."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = paths.python_path()
    try:
        return _Forked(kind, its)
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _measure(kind: str, its: socket.socket, env: dict[str, str]) -> None:
    from fusescope.jobs.process import member
    from fusescope.measure.checking import watch

    watch.WANTED = 5  # tests/measure holds what looking at 200 calls finds
    os.environ.update(env)
    os._exit(member.main(kind, str(its.detach())))
