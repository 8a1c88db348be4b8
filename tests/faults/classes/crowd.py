"""Five browser sessions, three command lines, one of which measures on a worker of a cluster, and a job's
worker on one profiles folder; in every fourth round the server is killed and started again on its port."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cluster_tools import member
from live_server import Live
from websockets.exceptions import WebSocketException

from fusescope.core import paths
from fusescope.jobs import submit
from fusescope.store import folder, library
from tests.faults.case import TryOne, folders, hold
from tests.faults.processes import end_warm_parents
from tests.faults.visitor import draw, visit

TITLE = "Five browsers, three command lines, a job and a cluster's worker at once; a killed server"
LEAST = 270  # some five minutes
SHARE = 5.5
SESSIONS, COMMANDS = 5, 3

BENCH = ["add", "--impl", "eager", "--case", "n=64", "--device", "cpu", "--budget", "0.01", "--json"]
VERBS = (
    ["bench", *BENCH],
    ["runs", "list", "--json"],
    ["runs", "list", "--limit", "3"],
    ["mask", "causal", "--seq", "64"],
    ["doctor", "--json"],
)
PAGES = ("", "kernels", "masks", "models", "runs", "profiler", "attention", "fusion")


@contextlib.contextmanager
def prepared(at: Path) -> Iterator[TryOne]:
    home = at / "live"
    home.mkdir()
    with (
        folders(home, OMP_NUM_THREADS="1") as profiles,
        member("scheduler", "--port", "0") as (_, scheduler),
        member("worker", scheduler["address"], "--device", "cpu"),
    ):
        for run in sorted((paths.ROOT / "profiles" / "recorded").glob("2*-bench-*"))[:3]:
            shutil.copytree(run, profiles / "recorded" / run.name)
        server = [Live(home)]
        token = server[0].token
        pages = [p for p in PAGES if not p or (paths.ROOT / "pages" / f"{p}.py").exists()]

        def try_one(seed: int) -> int:
            rng = random.Random(seed)
            before = {r.id for r in library.runs(limit=10_000)[0]}
            killed = seed % 4 == 3
            job = submit.submit(
                "bench",
                {
                    "op": "add",
                    "impls": ["eager"],
                    "cases": [{"n": 64}, {"n": 65}],
                    "device": "cpu",
                    "budget_s": 0.02,
                    "min_s": 0.001,
                },
            )
            visits = [[rng.choice(pages) for _ in range(2)] for _ in range(SESSIONS)]
            words = [["bench", *BENCH, "--cluster", scheduler["address"]]]
            words += [rng.choice(VERBS) for _ in range(COMMANDS - 1)]
            with ThreadPoolExecutor(SESSIONS + COMMANDS) as pool:
                tabs = [pool.submit(_visited, server[0], v, killed) for v in visits]
                typed = [pool.submit(_typed, w) for w in words]
                if killed:
                    server[0].process.send_signal(signal.SIGKILL)
                    server[0].process.wait()
                done = [t.result() for t in [*tabs, *typed]]
            if killed:
                server[0] = Live(home, port=server[0].port)
                hold(server[0].token == token, "in", "after a restart there is another token")
            run = submit.wait(job, 120)
            hold(run.status == "done", "state", f"the job is {run.status}: {run.reason}")
            hold(len(folder.records(library.find(job))) == 2, "lost", "records of the job")
            after = {r.id for r in library.runs(limit=10_000)[0]}
            hold(before <= after and job in after, "lost", f"runs that are gone: {before - after}")
            hold(not library.broken(), "lost", f"runs that cannot be read: {library.broken()}")
            return sum(done) + 1 + killed

        try:
            yield try_one
        finally:
            server[0].stop()
            end_warm_parents(home / "runtime")


def _visited(live: Live, pages: list[str], killed: bool) -> int:
    try:
        with visit(live) as socket:
            for page in pages:
                hold(draw(socket, page), "state", f"page {page} is empty")
    except (OSError, WebSocketException, EOFError):
        if not killed:
            raise
    return len(pages)


def _typed(words: list[str]) -> int:
    env = os.environ | {"PYTHONPATH": paths.python_path()}
    command = [sys.executable, "-m", "fusescope", *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    hold("Traceback" not in done.stderr and "its traceback is" not in done.stderr, "raw", done.stderr[-500:])
    hold(
        done.returncode == 0 or words[0] == "doctor",
        "words",
        f"{words}: {done.returncode} {done.stderr[-500:]}",
    )
    if "--json" in words and done.returncode == 0:
        json.loads(done.stdout)
    return 1
