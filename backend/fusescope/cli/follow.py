"""Watching a job from a terminal: progress with ETA and the log on standard error, Ctrl-C cancels the job."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fusescope.charts.progress import Moment, waiting
from fusescope.cli.interrupts import now
from fusescope.cli.output import draw, say
from fusescope.core.foreign.text import printable
from fusescope.core.records import Run
from fusescope.jobs import submit
from fusescope.store import folder, library
from fusescope.store.bounded import plain

_EVERY_S = 0.15
_ASK_EVERY_S = 1.0  # a worker that does not respond is woken up, then killed
_MOST_LOG = 1 << 20  # bytes of a log that are shown at a time
_STOP_S = 60.0  # time for a cancelled job to end on its own


def submitted(kind: str, spec: dict, title: str = "") -> str:
    """Start a job and return its run's id; ``follow`` comes next. A Ctrl-C from here on is seen to there."""
    return _begun(lambda: submit.submit(kind, spec, title))


def resumed(run_id: str, trust: bool = False) -> str:
    """Go on with a run, likewise."""
    return _begun(lambda: submit.resume(run_id, trust))


def _begun(start: Callable[[], str]) -> str:
    now.counting = True
    try:
        now.run = start()
        return now.run
    except BaseException:
        now.counting = False
        raise


def follow(run_id: str) -> Run:
    """Wait for the end of a job and return its run. Ctrl-C asks it to stop and keeps waiting; a second one
    leaves it running."""
    path = library.find(run_id)
    now.run = run_id
    line, stopping, asked = _Line(), None, 0.0
    with now.only_counted():
        while now.count < 2:
            run = folder.read(path)
            line.log(path / "log.txt")
            if not run.live:
                line.end()
                return run
            if now.count and not stopping:
                stopping = time.monotonic()
                line.end()
                say(f"{run_id}: {folder.CANCELLING}")
            if stopping and time.monotonic() - asked > _ASK_EVERY_S:
                asked = time.monotonic()
                submit.cancel(run_id)
            if stopping and time.monotonic() - stopping > _STOP_S:
                line.end()
                say(f"{run_id} has not stopped within {_STOP_S:.0f} s; it continues in the background")
                return run
            line.show(_words(run, _place(run)), _fixed(run))
            time.sleep(_EVERY_S)
    line.end()
    raise KeyboardInterrupt


def done(run: Run) -> bool:
    """Whether the run ended well; says why where it did not."""
    if run.status != "done":
        say(f"error: {run.id} {run.status}: {run.reason or 'no reason given'}")
    return run.status == "done"


def _words(run: Run, place: int | None) -> str:
    p = run.progress
    if run.live and run.reason:  # its worker does not respond
        return run.reason
    if run.status == "queued":
        text = f"queued, {place} ahead of it on this device" if place else "starting"
        return waiting(text, submit.asked(run.id), time.time())
    begun = submit.begun(run.id)
    return Moment(p, time.time() - begun if begun else None, time.time()).words


def _fixed(run: Run) -> tuple:
    """The part of the text that does not change merely because time passes."""
    return run.status, run.reason, run.progress.done, run.progress.message


def _place(run: Run) -> int | None:
    if run.status != "queued":
        return 0
    return next((j["place"] for j in submit.queue() if j["id"] == run.id), None)


class _Line:
    """One line that is written over on a terminal; elsewhere a line whenever the words, apart from the times,
    change."""

    def __init__(self):
        self.terminal = bool(sys.stderr) and sys.stderr.isatty()
        self.last: tuple | None = None
        self.read = 0

    def show(self, words: str, fixed: tuple) -> None:
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1
            draw("\r\x1b[K" + printable(words)[:width])
        elif fixed != self.last:
            say(words)
        self.last = fixed

    def log(self, file: Path) -> None:
        while new := self._next(file):
            self.read += len(new)
            self.end()
            draw(printable(new.decode(errors="replace")))

    def _next(self, file: Path) -> bytes:
        """Whole lines of the log that were not shown yet; of what is no plain file none."""
        try:
            with plain.opened(file) as f:
                f.seek(self.read)
                new = f.read(_MOST_LOG)
        except OSError:
            return b""
        return new[: new.rfind(b"\n") + 1] or (new if len(new) == _MOST_LOG else b"")

    def end(self) -> None:
        if self.terminal and self.last:
            draw("\r\x1b[K")
