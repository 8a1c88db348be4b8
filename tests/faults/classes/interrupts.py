"""Ctrl-C at random moments of the verbs that start a job."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.faults import jobs
from tests.faults.case import TryOne, folders
from tests.faults.interrupt import VERBS, interrupted
from tests.faults.processes import end_warm_parents

TITLE = "Ctrl-C at random moments: bench, model, traverse, search, import"
LEAST = 40
SHARE = 3.0


@contextlib.contextmanager
def prepared(at: Path) -> Iterator[TryOne]:
    jobs.inputs(at)
    try:
        with folders(at, OMP_NUM_THREADS="1", FUSESCOPE_WARM_IDLE_S="300") as profiles:

            def try_one(seed: int) -> int:
                for entry in profiles.iterdir():
                    shutil.rmtree(entry, ignore_errors=True)
                interrupted(list(VERBS)[seed % len(VERBS)], seed, profiles, at / "trace.json", 5.0)
                return 1

            yield try_one
    finally:
        end_warm_parents(at / "runtime")
