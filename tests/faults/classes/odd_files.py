"""Pipes, devices, sockets, links and folders in the place of a run's files or next to the runs, and names
that are no UTF-8: read, listed, shown by a server, exported, resumed and deleted."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import odd_files
from live_server import Live
from make_runs import make

from fusescope.core.errors import RunError
from fusescope.store import folder, library, transfer
from tests.faults.case import Fault, TryOne, folders, hold, refused_or_read
from tests.faults.commands import call
from tests.faults.processes import end_warm_parents
from tests.faults.visitor import draw, visit

TITLE = "Pipes, devices, sockets and links in the place of files; names that are no UTF-8"
LEAST = 200
SHARE = 1.5
RUNS = 3
MOST_S = 120  # of a case: a pipe that is opened waits for ever
PAGES = (("runs", ""), ("runs", "run={}"), ("kernels", "run={}"), ("profiler", "run={}"), ("", ""))


@contextlib.contextmanager
def prepared(at: Path) -> Iterator[TryOne]:
    home = at / "live"
    home.mkdir()
    with folders(home, OMP_NUM_THREADS="1") as profiles:
        make(profiles, RUNS, 4)
        ids = sorted(p.name for p in profiles.iterdir())
        away = odd_files.outside(at)
        live = Live(home)

        def try_one(seed: int) -> int:
            rng = random.Random(seed)
            odd, sound = profiles / ids[0], set(ids[1:])
            planted = _plant(odd, away, rng)
            what = f"seed {seed}: {', '.join(planted)}"
            with _at_most(MOST_S, what):
                _look(odd, sound, at, what)
                _served(live, odd, rng, what)
                _deleted(odd, sound, what)
            _restore(profiles)
            untouched = odd_files.untouched(away)
            odd_files.remove(away)
            odd_files.outside(at)
            hold(untouched, "outside", f"{what}: a file elsewhere was made or changed")
            return 1

        try:
            yield try_one
        finally:
            live.stop()
            end_warm_parents(home / "runtime")


def _plant(odd: Path, away: Path, rng: random.Random) -> list[str]:
    kinds, said = odd_files.kinds(away), []
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind = rng.choice(list(kinds))
        around = rng.random() < 0.25
        place = rng.choice(odd_files.AROUND if around else odd_files.PLACES)
        target = (odd.parent if around else odd) / place
        if any(home.is_symlink() for home in target.parents):
            continue  # one that was planted before leads elsewhere
        with contextlib.suppress(OSError):
            odd_files.put(target, kinds[kind])
            said.append(f"{place} is {kind}")
    if rng.random() < 0.3:
        name = rng.choice(odd_files.NAMES)
        with contextlib.suppress(OSError):
            odd_files.named(odd, name)
            said.append(f"a file {name!r}")
    return said


@contextlib.contextmanager
def _at_most(seconds: int, what: str) -> Iterator[None]:
    def late(*_):
        raise Fault("state", f"{what}: not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _look(odd: Path, sound: set[str], at: Path, what: str) -> None:
    """By the library and the command line."""
    for name, step in odd_files.readers(odd, at / "bundle.zip").items():
        with refused_or_read():
            hold("elsewhere" not in str(step()), "outside", f"{what}: {name} shows a file of elsewhere")
    listed = {run.id for run in library.runs()[0]}
    hold(listed >= sound, "lost", f"{what}: not listed: {sound - listed}")
    hold(listed | {i for i, _ in library.broken()} >= sound | {odd.name}, "lost", f"{what}: no row at all")
    rows = set(library.records()["run"])
    hold(rows >= sound, "lost", f"{what}: records of {sound - rows} are not found")
    for words in (["list", "--json"], ["show", odd.name], ["show", odd.name, "--json"]):
        code, out, _ = call("runs", *words)
        hold(code in (0, 1, 2), "words", f"{what}: runs {words}: exit code {code}")
        hold("elsewhere" not in out, "outside", f"{what}: runs {words} shows a file of elsewhere")
    with contextlib.suppress(RunError):
        folder.Writer(odd).close()


def _served(live: Live, odd: Path, rng: random.Random, what: str) -> None:
    page, query = rng.choice(PAGES)
    with visit(live) as socket:
        draw(socket, page, query.format(odd.name))
    for place in rng.sample(odd_files.PLACES, 3):
        path = f"/files/{odd.name}/{place}"
        status, _, body = live.ask("GET", path, authorization=f"Bearer {live.token}")
        hold(status in (200, 404), "raw", f"{what}: {path}: {status}")
        hold("elsewhere" not in body, "outside", f"{what}: {path} gives a file of elsewhere")


def _deleted(odd: Path, sound: set[str], what: str) -> None:
    with contextlib.suppress(RunError):
        transfer.delete(odd.name)
        hold(not os.path.lexists(odd), "state", f"{what}: deleted, and there")
    left = {run.id for run in library.runs()[0]}
    hold(left >= sound, "lost", f"{what}: after deleting, not listed: {sound - left}")


def _restore(profiles: Path) -> None:
    for entry in profiles.iterdir():
        odd_files.remove(entry)
    make(profiles, RUNS, 4)
