"""Disks that are full, that may only be read, and that are slow, from a random moment of a run on."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from make_runs import make, record

from fusescope.core.errors import RunError
from fusescope.core.records import Record
from fusescope.store import folder, library
from tests.faults.case import TryOne, folders, hold, one_sentence
from tests.faults.commands import call

TITLE = "Full, read-only and slow disks"
LEAST = 60
SHARE = 0.8
RECORDS = 15


def missing() -> str | None:
    return None if os.getuid() == 0 else "a small disk can be mounted by root only"


@contextlib.contextmanager
def prepared(at: Path) -> Iterator[TryOne]:
    tiny = at / "tiny"
    tiny.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tiny)], check=True)
    try:
        with folders(tiny):

            def try_one(seed: int) -> int:
                shutil.rmtree(tiny / "profiles", ignore_errors=True)
                (tiny / "profiles").mkdir()
                make(tiny / "profiles", 3, 5)
                (_full, _read_only, _slow)[seed % 3](tiny, random.Random(seed))
                return 1

            yield try_one
    finally:
        subprocess.run(["umount", "-l", str(tiny)], check=True)


def _written(path: Path, rng: random.Random, happens) -> int:
    """Write records, with something happening after some of them; how many were taken."""
    kept, moment = 0, rng.randrange(RECORDS)
    with contextlib.closing(folder.Writer(path)) as writer:
        try:
            writer.state("running")
            for n in range(RECORDS):
                if n == moment:
                    happens()
                one = Record.from_json(record("add", n, "eager"))
                writer.samples(one.case_key, one.impl, "graph", [1.0] * rng.randint(1, 5000))
                writer.record(one)
                kept += 1
                writer.progress(n, RECORDS, "step")
            writer.state("done")
        except RunError as error:
            one_sentence(str(error))
            with contextlib.suppress(RunError):
                writer.state("failed", str(error))
    return kept


def _kept(path: Path, kept: int, states: tuple[str, ...]) -> None:
    run = folder.read(path)
    hold(run.status in states, "state", f"{run.status}, {run.reason}")
    found = [r.case["n"] for r in folder.records(path)]
    hold(found[:kept] == list(range(kept)), "lost", f"{len(found)} records of {kept}: {run.status}")
    hold(run.status != "done" or kept == RECORDS, "state", f"done with {kept} records")


def _listed(total: int, of_others: int = 15) -> None:
    hold(
        library.runs()[1] == total and not library.broken(), "lost", f"{library.runs()[1]} of {total} listed"
    )
    others = library.records()
    hold((others["run"] != "").sum() >= of_others, "lost", "records of other runs are not found")
    code, _, err = call("runs", "list")
    hold(code == 0, "words", f"runs list: {code} {err}")


def _full(tiny: Path, rng: random.Random) -> None:
    filler = tiny / ".filler"

    def fill() -> None:
        free = os.statvfs(tiny)
        left = rng.choice((0, 0, 4096, 20_000))
        with open(filler, "wb", buffering=0) as f, contextlib.suppress(OSError):
            for _ in range(max(0, free.f_bavail * free.f_frsize - left) // 1024):
                f.write(b"x" * 1024)
            while not left:
                f.write(b"x")

    try:
        path = folder.create("bench", {"op": "add"})
        kept = _written(path, rng, fill)
        _kept(path, kept, ("failed", "interrupted", "done"))
        _listed(4)
        runs = [r.id for r in library.runs()[0]]
        code, _, err = call("runs", "delete", rng.choice(runs))
        hold(code == 0, "words", f"on a full disk nothing can be deleted: {err}")
        _listed(3, 10)
        with contextlib.suppress(RunError):
            folder.create("bench", {"op": "add", "filler": "x" * 30_000})
        left = [n for n in os.listdir(tiny / "profiles") if n.startswith((".new-", ".deleted-"))]
        hold(not left, "state", f"half-made folders stay: {left}")
    finally:
        filler.unlink(missing_ok=True)


def _read_only(tiny: Path, rng: random.Random) -> None:
    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(tiny)], check=True)

    path = folder.create("bench", {"op": "add"})
    try:
        # A disk with files open for writing cannot be remounted: the run is one that somebody else holds.
        kept = _written(path, rng, lambda: None)
        remount("ro")
        _kept(path, kept, ("done",))
        _listed(4)
        for words in (["delete", path.name], ["tag", path.name, "--add", "x"]):
            code, _, err = call("runs", *words)
            hold(code in (1, 2), "words", f"{words} on a read-only disk: {code}")
            one_sentence(err)
        try:
            folder.create("bench", {"op": "add"})
            hold(False, "state", "a run was made on a read-only disk")
        except RunError as error:
            one_sentence(str(error))
    finally:
        remount("rw")
    hold(folder.read(path).status == "done", "state", "after the disk can be written again")


def _slow(tiny: Path, rng: random.Random) -> None:
    """fsync takes up to 50 ms, a rename up to 10 ms; readers look on meanwhile."""
    real = os.fsync, os.fdatasync, os.replace
    path = folder.create("bench", {"op": "add"})

    def late(call, most: float):
        def wait(*args, **options):
            time.sleep(rng.uniform(0, most))
            return call(*args, **options)

        return wait

    os.fsync, os.fdatasync, os.replace = late(real[0], 0.05), late(real[1], 0.05), late(real[2], 0.01)
    try:
        kept = _written(path, rng, lambda: _seen_running(path))
    finally:
        os.fsync, os.fdatasync, os.replace = real
    _kept(path, kept, ("done",))
    hold(kept == RECORDS, "lost", f"{kept} records on a slow disk")
    _listed(4)


def _seen_running(path: Path) -> None:
    run = folder.read(path)
    hold(
        run.status == "running" and run.reason is None, "state", f"on a slow disk {run.status}, {run.reason}"
    )
