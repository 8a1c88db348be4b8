"""Kernels on a GPU that hang, read where nothing is, take all memory, and jobs killed while one runs: the
other implementation of the same run is measured all the same."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from fusescope.jobs import submit
from fusescope.store import folder, library
from tests.faults.case import TryOne, folders, hold
from tests.faults.processes import end_warm_parents

TITLE = "Kernels that hang, fault or exhaust memory on a GPU"
LEAST = 8
SHARE = 1.0
NEEDS_GPU = True

FUNCTIONS = """
import torch

def hangs(a, b):
    torch.cuda._sleep(1 << 45)
    return a + b

def faults(a, b):
    return a + b[torch.full((1,), 1 << 40, device=a.device)]

def exhausts(a, b):
    return a + torch.empty(1 << 42, device=a.device)[: a.numel()]
"""
WRONG = {"hangs": ("timeout",), "faults": ("crashed", "error"), "exhausts": ("oom",), "killed": ()}


def missing() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "no CUDA device"


@contextlib.contextmanager
def prepared(at: Path) -> Iterator[TryOne]:
    own = at / "own.py"
    own.write_text(FUNCTIONS)
    with folders(at, FUSESCOPE_CANCEL_GRACE_S="2"):

        def try_one(seed: int) -> int:
            what = list(WRONG)[seed % len(WRONG)]
            impls = ["eager"] if what == "killed" else [f"{own}:{what}", "eager"]
            spec = {
                "op": "add",
                "impls": impls,
                "baseline": "eager",
                "cases": [{"n": 1 << 20}, {"n": 1 << 16}],
            }
            spec |= {"device": "cuda:0", "case_deadline_s": 15.0, "budget_s": 0.5}
            run_id = submit.submit("bench", spec)
            path = library.find(run_id)
            if what == "killed":
                _killed(path, random.Random(seed))
                submit.resume(run_id)
            run = submit.wait(run_id, 240)
            hold(run.status == "done", "state", f"{what}: {run.status}, {run.reason}")
            found = {(r.case["n"], r.impl.rpartition(":")[2]): r.status for r in folder.records(path)}
            good = [found.get((case["n"], "eager")) for case in spec["cases"]]
            hold(good == ["ok", "ok"], "lost", f"{what}: {found}")
            bad = {status for (_, impl), status in found.items() if impl == what}
            hold(bad <= set(WRONG[what]), "state", f"{what}: {found}")
            return 1

        try:
            yield try_one
        finally:
            end_warm_parents(at / "runtime")


def _killed(path: Path, rng: random.Random) -> None:
    end = time.monotonic() + 60
    while folder.read(path).status == "queued" and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(rng.uniform(0.0, 2.0))
    before = len(folder.records(path))
    worker = json.loads((path / "run.json").read_text()).get("worker")
    if worker:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker["pid"], signal.SIGKILL)
    run = submit.wait(path.name, 30)
    hold(run.status in ("interrupted", "done"), "state", f"killed: {run.status}, {run.reason}")
    hold(len(folder.records(path)) >= before, "lost", f"killed: {before} records before")
