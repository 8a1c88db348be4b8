"""Watching a job from a terminal: progress with ETA and the log on standard error, Ctrl-C cancels the job."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from fusescope.charts.numbers import seconds
from fusescope.cli.output import say
from fusescope.core.records import Run
from fusescope.jobs import submit
from fusescope.store import folder, library

_EVERY_S = 0.15
_STOP_S = 60.0  # what a cancelled job gets to end by itself


def follow(run_id: str) -> Run:
    """Wait for the end of a job and return its run. Ctrl-C asks it to stop and keeps waiting; a second one
    leaves it running."""
    path = library.find(run_id)
    line, stopping = _Line(), None
    with _interrupts() as interrupts:
        while True:
            run = folder.read(path)
            line.log(path / "log.txt")
            if not run.live:
                line.end()
                return run
            if interrupts and not stopping:
                stopping = time.monotonic()
                line.end()
                say(f"stopping {run_id}; its records are kept")
                submit.cancel(run_id)
            if stopping and time.monotonic() - stopping > _STOP_S:
                line.end()
                say(f"{run_id} has not stopped within {_STOP_S:.0f} s; it continues in the background")
                return run
            line.show(_words(run, _place(run)))
            time.sleep(_EVERY_S)


def done(run: Run) -> bool:
    """Whether the run ended well; says why where it did not."""
    if run.status != "done":
        say(f"error: {run.id} {run.status}: {run.reason or 'no reason given'}")
    return run.status == "done"


@contextlib.contextmanager
def _interrupts() -> Iterator[list]:
    """A list that grows at the first Ctrl-C; further ones raise KeyboardInterrupt. An exception could come
    anywhere, also where Python drops it (in a finaliser), and the job would go on. Threads other than the
    main one get none."""
    interrupts: list[int] = []

    def note(number, frame):
        if interrupts:
            raise KeyboardInterrupt
        interrupts.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)


def _words(run: Run, place: int | None) -> str:
    p = run.progress
    if run.status == "queued":
        return f"queued, {place} ahead of it on this device" if place else "starting"
    counted = f"{p.done}/{p.total} " if p.total else ""
    eta = f", about {seconds(p.eta_s)} left" if p.eta_s else ""
    return f"{counted}{p.message or 'running'}{eta}"


def _place(run: Run) -> int | None:
    if run.status != "queued":
        return 0
    return next((j["place"] for j in submit.queue() if j["id"] == run.id), None)


class _Line:
    """One line that is written over on a terminal; elsewhere a line whenever the words, apart from the ETA,
    change."""

    def __init__(self):
        self.terminal = sys.stderr.isatty()
        self.last = ""
        self.read = 0

    def show(self, words: str) -> None:
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1
            print("\r\x1b[K" + words[:width], end="", file=sys.stderr, flush=True)
        elif words.partition(", about")[0] != self.last:
            say(words)
        self.last = words.partition(", about")[0]

    def log(self, file: Path) -> None:
        with contextlib.suppress(FileNotFoundError), file.open("rb") as f:
            f.seek(self.read)
            new = f.read()
            new = new[: new.rfind(b"\n") + 1]
            self.read += len(new)
            if new:
                self.end()
                print(new.decode(errors="replace"), end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.terminal and self.last:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
