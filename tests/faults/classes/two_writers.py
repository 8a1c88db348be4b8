"""Several processes change runs and replace the index, while this one queries it; two want the same run."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from make_runs import make

from fusescope.core import paths
from fusescope.core.errors import RunError
from fusescope.store import folder, library
from tests.faults.case import TryOne, folders, hold, one_sentence

TITLE = "Two writers, and readers of their index"
LEAST = 60
SHARE = 0.8
RUNS, RECORDS = 12, 10

WRITER = """
import contextlib, itertools, os, random, sys
from fusescope.core.errors import RunError
from fusescope.store import folder, library, transfer
rng = random.Random(int(sys.argv[1]))
print("up", flush=True)
parent = os.getppid()
for n in itertools.count():
    if os.getppid() != parent:  # the command was killed: nobody is left to end this loop
        break
    run = library.runs(limit=100)[0][rng.randrange(12)]
    try:
        folder.write_notes(library.find(run.id), title=f"{sys.argv[1]} {n}")
        library.records(op="add")
        if n % 5 == 0:  # a run of its own, which comes, ends and goes
            path = folder.create("steps", {})
            with contextlib.closing(folder.Writer(path)) as writer:
                writer.state("running")
                writer.state("done")
            transfer.delete(path.name)
    except RunError as error:  # deleted by the other one meanwhile
        if "there is no run" not in str(error) and "is not a run folder" not in str(error):
            raise
"""


@contextlib.contextmanager
def prepared(at: Path) -> Iterator[TryOne]:
    with folders(at) as home:
        make(home, RUNS, RECORDS)
        base = {p.name for p in home.glob("2*")}
        env = os.environ | {"PYTHONPATH": paths.python_path()}
        processes, errors = [], []
        for n in range(2):
            errors.append(open(at / f"writer-{n}", "w+"))
            command = [sys.executable, "-c", WRITER, str(n)]
            processes.append(
                subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=errors[n], text=True)
            )
        for process in processes:
            process.stdout.readline()

        def try_one(seed: int) -> int:
            rng = random.Random(seed)
            found = {r.id for r in library.runs(limit=100)[0]} | {i for i, _ in library.broken()}
            hold(base <= found, "lost", f"not listed: {base - found}")
            records = library.records()
            counts = records[records["run"].isin(base)].groupby("run").size()
            hold(len(counts) == RUNS and (counts == RECORDS).all(), "lost", f"records by run: {dict(counts)}")
            hold(library.runs(op="gemm")[1] == RUNS // 4, "state", "a filter finds other runs")
            _one_holds(home / rng.choice(sorted(base)))
            for process, file in zip(processes, errors):
                file.seek(0)
                hold(process.poll() is None, "raw", f"a writer ended: {file.read()[-800:]}")
            return 4

        try:
            yield try_one
        finally:
            for process, file in zip(processes, errors):
                process.send_signal(signal.SIGKILL)
                process.communicate()
                file.close()


def _one_holds(path: Path) -> None:
    """Who comes second to a run is refused, and changes nothing."""
    with contextlib.closing(folder.Writer(path)):
        before = (path / "results.jsonl").read_bytes()
        try:
            folder.Writer(path).close()
            hold(False, "state", "two writers held one run")
        except RunError as error:
            one_sentence(str(error))
        hold((path / "results.jsonl").read_bytes() == before, "lost", "the second writer changed the records")
