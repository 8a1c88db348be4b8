"""A server draws pages and one process submits jobs, many times: memory, descriptors and processes of both
stay level."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from jobs_tools import KINDS
from live_server import Live

from fusescope.core import paths
from fusescope.jobs import submit
from fusescope.store import library
from pages._ui.guard.sessions import KEPT
from tests.faults.case import TryOne, folders, hold
from tests.faults.processes import descendants, descriptors, end_warm_parents, resident_mib
from tests.faults.visitor import draw, visit

TITLE = "Soak: page draws by one server, jobs by one process"
LEAST = 1200
SHARE = 4.0
DRAWS, JOBS = 5, 1  # of one case
_WARM_UP = 40  # draws until caches are filled
_EACH = 5  # descriptors of a visitor who may come back
_MIB, _MIB_PER_DRAW = 120.0, 0.05  # of growth that is a cache's, and that no leak of a page stays below
PAGES = ("", "runs", "kernels", "masks")


@contextlib.contextmanager
def prepared(at: Path) -> Iterator[TryOne]:
    home = at / "live"
    home.mkdir()
    with folders(home, OMP_NUM_THREADS="1", FUSESCOPE_KINDS=str(KINDS)) as profiles:
        for run in sorted((paths.ROOT / "profiles" / "recorded").glob("2*-bench-*"))[:2]:
            shutil.copytree(run, profiles / "recorded" / run.name)
        live = Live(home)
        try:
            draws = 0
            for n in range(_WARM_UP):
                _look(live, n)
            _job()
            began = _level(live)

            def try_one(seed: int) -> int:
                nonlocal draws
                for n in range(DRAWS):
                    _look(live, seed * DRAWS + n)
                draws += DRAWS
                _job()
                _hold_level(live, began, draws)
                return DRAWS + JOBS

            yield try_one
        finally:
            live.stop()
            end_warm_parents(home / "runtime")


def _look(live: Live, n: int) -> None:
    with visit(live) as socket:
        draw(socket, PAGES[n % len(PAGES)])


def _job() -> None:
    run = submit.wait(submit.submit("steps", {"steps": ["ok"]}), 60)
    hold(run.status == "done", "state", f"a job is {run.status}: {run.reason}")
    hold(library.runs(limit=1)[0][0].id == run.id, "lost", "the last job is not listed first")


def _level(live: Live) -> dict[str, float]:
    pid, own = live.process.pid, os.getpid()
    gc.collect()
    return {
        "descriptors of the server": descriptors(pid),
        "descriptors of the submitting process": descriptors(own),
        "processes of the server": len(descendants(pid)),
        "MiB of the server": resident_mib(pid),
        "MiB of the submitting process": resident_mib(own),
    }


def _hold_level(live: Live, began: dict[str, float], draws: int) -> None:
    most = {
        "descriptors of the server": _EACH * KEPT,
        "descriptors of the submitting process": 8,
        "processes of the server": 1,
        "MiB of the server": _MIB + _MIB_PER_DRAW * draws,
        "MiB of the submitting process": _MIB,
    }
    end = time.monotonic() + 15  # sessions that ended are closed a little later
    while True:
        now = _level(live)
        high = {k: f"{now[k]:.0f} after {began[k]:.0f}" for k in now if now[k] > began[k] + most[k]}
        if not high or time.monotonic() > end:
            break
        time.sleep(0.2)
    hold(not high, "level", f"after {draws} draws: {high}")
