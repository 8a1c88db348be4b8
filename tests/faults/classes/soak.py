"""A server draws pages and starts the jobs of its visitors, many times: its memory, descriptors and processes
stay level."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from live_server import Live

from fusescope.core import paths
from fusescope.store import library
from pages._ui.guard.sessions import KEPT
from tests.faults.case import TryOne, folders, hold
from tests.faults.processes import descendants, descriptors, end_warm_parents, resident_mib
from tests.faults.visitor import draw, visit

TITLE = "Soak: page draws, and jobs started from a page, by one server"
LEAST = 1200
SHARE = 9.0
FIRST = True
LOOKS, JOBS = 3, 1  # of one case
DRAWS = LOOKS + 2 * JOBS  # a job takes two of its page
_WARM_UP = 40  # draws until caches are filled
_BUILDS_S = 600.0  # of the first job, which may compile
_EACH = 5  # descriptors of a visitor who may come back
_MIB, _MIB_PER_DRAW = 120.0, 0.05  # of growth that is a cache's, and that no leak of a page stays below
PAGES = ("", "runs", "kernels", "masks")


@contextlib.contextmanager
def prepared(at: Path) -> Iterator[TryOne]:
    home = at / "live"
    home.mkdir()
    with folders(home, OMP_NUM_THREADS="1") as profiles:
        for run in sorted((paths.ROOT / "profiles" / "recorded").glob("2*-bench-*"))[:2]:
            shutil.copytree(run, profiles / "recorded" / run.name)
        live = Live(home)
        try:
            draws = 0
            for n in range(_WARM_UP):
                _look(live, n)
            _job(live, _BUILDS_S)
            began = _level(live)

            def try_one(seed: int) -> int:
                nonlocal draws
                for n in range(LOOKS):
                    _look(live, seed * LOOKS + n)
                draws += DRAWS
                _job(live, 120.0)
                _hold_level(live, began, draws)
                return DRAWS + JOBS

            yield try_one
        finally:
            live.stop()
            end_warm_parents(home / "runtime")


def _look(live: Live, n: int) -> None:
    with visit(live) as socket:
        draw(socket, PAGES[n % len(PAGES)])


def _job(live: Live, most_s: float) -> None:
    """A visitor presses Build, which has nothing to compile from the second time on."""
    before = [run.id for run in library.runs(limit=1)[0]]
    with visit(live) as socket:
        buttons = draw(socket, "build")
        hold("build/start" in buttons, "state", f"Build cannot be pressed; there are {sorted(buttons)}")
        draw(socket, "build", press=buttons["build/start"])
        run, end = None, time.monotonic() + most_s
        while (run is None or run.live or [run.id] == before) and time.monotonic() < end:
            time.sleep(0.05)
            run = next(iter(library.runs(limit=1)[0]), None)
    hold(run and [run.id] != before, "lost", "the job that a visitor started is not listed first")
    hold(run.status == "done", "state", f"a job is {run.status}: {run.reason}")


def _level(live: Live) -> dict[str, float]:
    pid = live.process.pid
    return {
        "descriptors of the server": descriptors(pid),
        "processes of the server": len(descendants(pid)),
        "MiB of the server": resident_mib(pid),
    }


def _hold_level(live: Live, began: dict[str, float], draws: int) -> None:
    most = {
        "descriptors of the server": _EACH * KEPT,
        "processes of the server": 1,
        "MiB of the server": _MIB + _MIB_PER_DRAW * draws,
    }
    end = time.monotonic() + 15  # sessions that ended are closed a little later
    while True:
        now = _level(live)
        high = {k: f"{now[k]:.0f} after {began[k]:.0f}" for k in now if now[k] > began[k] + most[k]}
        if not high or time.monotonic() > end:
            break
        time.sleep(0.2)
    hold(not high, "level", f"after {draws} draws: {high}")
