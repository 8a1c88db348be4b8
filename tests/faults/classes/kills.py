"""Real bench, model, traverse, search and import runs whose worker, body, warm parent or submitter is killed,
told to end or stopped at random moments, resumed, and killed again."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from jobs_tools import ended

from fusescope.core import paths
from fusescope.jobs import submit
from fusescope.jobs.process import warm_parent
from fusescope.store import folder, library
from fusescope.store.live import signs
from tests.faults import left
from tests.faults.case import TryOne, folders, hold
from tests.faults.jobs import NEVER_S, OPTIONS, SPECS, inputs
from tests.faults.processes import children, end_warm_parents

TITLE = "Killed, told to end or stopped: worker, body, warm parent, submitter"
LEAST = 300
SHARE = 20.0
PARTS = 3
_LATE_S = 1.6  # how long a stopped worker is waited for here, instead of 15 s
_KILLS = 5  # of one run
_LONGEST_S = 4.0  # of waiting for the next kill
KINDS = ("bench", "traverse", "import", "search", "traverse", "import", "bench", "model")

WAYS = (
    *[("worker", signal.SIGKILL)] * 20,
    *[("worker", signal.SIGTERM)] * 8,
    *[("body", signal.SIGKILL)] * 6,
    *[("body", signal.SIGTERM)] * 2,
    *[("submitter", signal.SIGKILL)] * 2,
    *[("worker", signal.SIGSTOP)] * 2,
    ("warm parent", signal.SIGKILL),
)


@contextlib.contextmanager
def prepared(at: Path) -> Iterator[TryOne]:
    inputs(at)
    late, signs._LATE_S = signs._LATE_S, _LATE_S
    try:
        with folders(at, **OPTIONS):
            undisturbed = cache(lambda kind: _undisturbed(kind, SPECS[kind](at)))

            def try_one(seed: int) -> int:
                kind = KINDS[seed % len(KINDS)]
                return _campaign(kind, SPECS[kind](at), *undisturbed(kind), random.Random(seed))

            yield try_one
    finally:
        signs._LATE_S = late
        end_warm_parents(at / "runtime")


def _undisturbed(kind: str, spec: dict) -> tuple[left.Left, float]:
    """What a run leaves when nobody disturbs it, and for how long to wait for the next kill (seconds)."""
    begin = time.monotonic()
    run = submit.wait(submit.submit(kind, spec), NEVER_S)
    hold(left.finished(run), "state", f"undisturbed, a {kind} run is {run.status}: {run.reason}")
    return left.of(run.id, kind), min(_LONGEST_S, time.monotonic() - begin)


def _campaign(kind: str, spec: dict, whole: left.Left, took: float, rng: random.Random) -> int:
    """One run, killed some times, and finished. Returns the number of kills."""
    who, how = rng.choice(WAYS)
    if who == "submitter":
        run_id = _submitted_by_another(kind, spec, rng)
        if run_id is None:
            return 1
        if folder.read(library.find(run_id)).status == "interrupted":
            submit.resume(run_id)  # it says that it never started: killed between the queue and the worker
    else:
        run_id = submit.submit(kind, spec)
    path, kills = library.find(run_id), int(who == "submitter")
    said = [f"{kind} {run_id}"]
    for attempt in range(_KILLS):
        if attempt or who == "submitter":
            who, how = rng.choice([w for w in WAYS if w[0] != "submitter"])
        _until_signed(path)
        time.sleep(took * rng.random() ** 3)  # often early, now and then among the records
        said.append(_strike(path, who, how, rng))
        kills += " of the nobody " not in said[-1]
        run = folder.read(path)
        if run.status == "done":
            break
        if run.status != "incomplete":
            submit.resume(run_id)
    for _ in range(3):
        run = submit.wait(run_id, NEVER_S)
        if left.finished(run) or run.live:
            break
        submit.resume(run_id)
    way = ", ".join(said)
    hold(left.finished(run), "state", f"{way}: {run.status}, {run.reason}")
    crashes = sum(" of the body " in one for one in said)
    left.compare(way, left.of(run_id, kind), whole, crashes, kind != "search")
    return kills


def _lines(path: Path) -> list[bytes]:
    """Records that are written whole."""
    try:
        return (path / "results.jsonl").read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []


def _until_signed(path: Path) -> None:
    """Wait for the worker's name in run.json: before it there is nobody to strike."""
    end = time.monotonic() + NEVER_S
    while time.monotonic() < end and folder.read(path).live:
        if json.loads((path / "run.json").read_text()).get("worker"):
            return
        time.sleep(0.005)


def _strike(path: Path, who: str, how: signal.Signals, rng: random.Random) -> str:
    """Signal one process of a run, check what becomes of it, and wait until the run has ended."""
    data = json.loads((path / "run.json").read_text())
    worker = (data.get("worker") or {}).get("pid")
    victim = {"worker": worker, "body": None, "warm parent": _warm_parent()}[who]
    if who == "body" and worker:
        victim = next(iter(children(worker)), None)
    before = _lines(path)
    if victim is None or (who != "warm parent" and worker is None):
        who = "nobody"
    else:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, how)
    what = f"{how.name} of the {who} after {len(before)} records"
    if who == "worker" and how == signal.SIGSTOP:
        _stopped(path, victim, rng, what)
    run = submit.wait(path.name, NEVER_S)
    hold(not run.live, "state", f"{what}: still {run.status} after {NEVER_S:.0f} s")
    after = _lines(path)
    hold(after[: len(before)] == before, "lost", f"{what}: {len(before)} records before, {len(after)} after")
    allowed = {
        "worker": ("done", "interrupted", "cancelled" if how == signal.SIGSTOP else "interrupted"),
        "body": ("done", "failed", "interrupted" if how == signal.SIGTERM else "failed"),
    }.get(who, ("done",))
    fine = run.status in allowed or left.finished(run)
    hold(fine, "state", f"{what}: {run.status}, {run.reason}")
    hold(run.status == "done" or run.reason, "state", f"{what}: {run.status} without a reason")
    if worker and who != "warm parent":
        end = time.monotonic() + 20
        while not ended(worker) and time.monotonic() < end:
            time.sleep(0.005)
        hold(ended(worker), "state", f"{what}: the worker is still there")
    return what


def _stopped(path: Path, worker: int, rng: random.Random, what: str) -> None:
    """A stopped worker is said to be silent; it goes on, or is cancelled."""
    time.sleep(_LATE_S + 0.3)
    run = folder.read(path)
    # It may have ended before the signal, or its folder not have been a live one yet.
    hold(
        not run.live or "not responding" in (run.reason or ""), "state", f"{what}: {run.status} {run.reason}"
    )
    if rng.random() < 0.5:
        submit.cancel(path.name)
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, signal.SIGCONT)


def _warm_parent() -> int | None:
    try:
        with warm_parent.Door() as door:
            return json.loads(door.state.read_text())["pid"]
    except (OSError, ValueError, KeyError):
        return None


def _submitted_by_another(kind: str, spec: dict, rng: random.Random) -> str | None:
    """Submit from a process that is killed at a random moment; the id of the run that came of it, if one did.
    What is there of it then is a run that goes on, or one that says that it never started."""
    code = "import json, sys; from fusescope.jobs import submit; print('up', flush=True); "
    code += "submit.submit(*json.loads(sys.argv[1]))"
    there = set(os.listdir(paths.profiles()))
    env = os.environ | {"PYTHONPATH": paths.python_path()}
    process = subprocess.Popen(
        [sys.executable, "-c", code, json.dumps([kind, spec])], stdout=subprocess.PIPE, env=env, text=True
    )
    process.stdout.readline()
    time.sleep(rng.uniform(0.0, 0.15))
    process.kill()
    process.communicate()
    new = [n for n in set(os.listdir(paths.profiles())) - there if folder.ID.fullmatch(n)]
    hold(len(new) <= 1, "state", f"one submission made {new}")
    if not new:
        return None
    run = folder.read(library.find(new[0]))
    hold(run.live or run.reason or run.status == "done", "state", f"{run.status} without a reason")
    if run.status == "queued" and not folder.alive(library.find(new[0])):
        return None  # killed between the folder and the lock: it may be started by hand for 15 s
    return new[0]
