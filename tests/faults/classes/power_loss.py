"""The power goes at every moment of a run's life: what the disk may then hold is read, listed and resumed."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from make_runs import record

from fusescope.core.errors import RunError
from fusescope.core.records import Record
from fusescope.store import folder, writer
from tests.faults.case import TryOne, folders, hold, variables
from tests.faults.recorded_disk import Recording, recording

TITLE = "Power cut at every prefix of every write"
LEAST = 2000
SHARE = 1.0
RECORDS = 5


def life(home: Path) -> tuple[Recording, list[Record], str]:
    """A run from its submission to its end and its notes, as recorded; a mark after each record says how many
    are certain: all but those since the last fsync."""
    true = [Record.from_json(record("add", n, "eager")) for n in range(RECORDS)]
    with recording(home) as made:
        path = folder.create("bench", {"op": "add"}, title="a title")
        made.mark((0, "queued"))
        with contextlib.closing(folder.Writer(path)) as one:
            one.launched()
            one.sign()
            one.state("running")
            made.mark((0, "running"))
            for n, found in enumerate(true):
                one.doing(found.case_key, found.impl, 60.0)
                one.samples(found.case_key, found.impl, "graph", [1.0, 2.0])
                one.record(found)
                one.beat()
                made.mark((n + 1, "running"))
                one.progress(n + 1, RECORDS, f"step {n}")
                one.flush_progress(now=True)
                one.environment(step=n)
            one.state("done")
            made.mark((RECORDS, "done"))
        folder.write_notes(path, title="another title", tags=["a"])
    return made, true, path.name


@contextlib.contextmanager
def prepared(at: Path) -> Iterator[TryOne]:
    kept = writer._SYNC_EVERY_S
    writer._SYNC_EVERY_S = (
        0.0  # each record is certain as soon as it is said: what is promised after a second
    )
    try:
        with folders(at) as home:
            made, true, run_id = life(home)
            points = made.points()

            def try_one(seed: int) -> int:
                point = points[seed * 7919 % len(points)]  # all of them, spread, in as many cases
                where = at / "left"
                shutil.rmtree(where, ignore_errors=True)
                made.left(point, random.Random(seed), where)
                with variables(FUSESCOPE_PROFILES=str(where)):
                    _check(made, point, where / run_id, true, seed % 5 == 0)
                return 1

            yield try_one
    finally:
        writer._SYNC_EVERY_S = kept


def _check(made: Recording, point: tuple[int, int], path: Path, true: list[Record], resume: bool) -> None:
    certain, state = max((known for n, known in made.marks if n <= point[0]), default=(0, None))
    what = f"cut after {point[0]} steps and {point[1]} bytes ({certain} records, {state})"
    if not path.exists():
        hold(certain == 0, "lost", f"{what}: the run is gone")
        return
    try:
        run, found = folder.read(path), folder.records(path)
        folder.samples(path)
    except RunError as error:
        hold(False, "lost", f"{what}: {error}")
    hold(found == true[: len(found)], "state", f"{what}: other records than were written")
    hold(len(found) >= certain, "lost", f"{what}: {len(found)} records")
    whole = len(found) == RECORDS
    hold(run.status in ("queued", "interrupted", "done"), "state", f"{what}: {run.status}, {run.reason}")
    hold(run.status != "done" or whole, "state", f"{what}: done with {len(found)} records")
    hold(run.title in ("a title", "another title"), "lost", f"{what}: the title is {run.title!r}")
    if not resume:
        return
    with contextlib.closing(folder.Writer(path)) as again:  # what a resumed run begins with
        hold(len(again.skip()) == len(found), "lost", f"{what}: resumed with {len(again.skip())}")
        again.state("running")
        for one in true[len(found) :]:
            again.record(one)
        again.state("done")
    run = folder.read(path)
    hold(run.status == "done" and folder.records(path) == true, "state", f"{what}: resumed, {run.reason}")
