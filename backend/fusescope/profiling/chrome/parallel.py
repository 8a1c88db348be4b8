"""A Chrome trace read into tables by several processes, a portion of the file each; by one where the file
does not allow that.

    python -m fusescope.profiling.chrome.parallel FILE BEGIN END       what a helping process runs; its
    standard output is for ``_Helper``

Portions meet where an event seems to end. That holds if every portion decodes, since the first one begins
rightly; if any does not, the whole file is read again by one process, whose sentence on what is wrong is the
one that is shown.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import selectors
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from fusescope.core import paths
from fusescope.profiling.chrome.events import Decoder
from fusescope.profiling.chrome.sort_events import Collector
from fusescope.profiling.chrome.stream import ChromeTrace

MAX_EVENTS = 50_000_000
_WORTH = 96 << 20  # bytes of text that keep a process busy for longer than it takes to start
_MOST = 8  # processes
_POLL_S = 0.2


def read(
    path: Path,
    progress: Callable[[float, str], None],
    decoder: Decoder | None = None,
    portions: int | None = None,
) -> tuple[ChromeTrace, Collector, int]:
    """(the trace with its metadata and notes, what was collected of it, how many events). ValueError: why it
    is no trace.

    progress(share of the reading, in words) is called after each run of events and may raise to stop.
    portions: processes; None: as many as the file is worth and this machine has cores.
    """
    places = _places(path, portions)
    if places and decoder is None:
        with contextlib.suppress(ValueError):
            return _together(path, places, progress)
    trace, collector = ChromeTrace(path, decoder), Collector()
    count = _collect(trace, collector, progress, 1)
    return trace, collector, count


def _places(path: Path, portions: int | None) -> list[int]:
    """Bytes of the unpacked text at which portions but the first begin."""
    text = path.stat().st_size
    with open(path, "rb") as raw:
        if raw.read(2) == b"\x1f\x8b" and text > 4:
            # a packed file ends with the size of its text; where that is wrong (beyond 4 GiB) no portion
            # begins in the right place
            raw.seek(-4, os.SEEK_END)
            text = int.from_bytes(raw.read(4), "little")
    count = portions or min(_MOST, len(os.sched_getaffinity(0)), text // _WORTH)
    return [text * n // count for n in range(1, count)]


def _together(
    path: Path, places: list[int], progress: Callable[[float, str], None]
) -> tuple[ChromeTrace, Collector, int]:
    with contextlib.ExitStack() as stack:
        helpers = [stack.enter_context(_Helper(path, a, b)) for a, b in zip(places, [*places[1:], None])]
        trace, collector = ChromeTrace(path, end=places[0]), Collector()
        count = _collect(trace, collector, progress, len(places) + 1)
        for helper in helpers:
            found = helper.result(lambda: progress(1.0, "waiting for the last events"))
            collector.join(found["collected"])
            trace.metadata |= found["metadata"]
            trace.notes += found["notes"]
            count += found["count"]
            _bounded(count)
    return trace, collector, count


def _collect(
    trace: ChromeTrace, collector: Collector, progress: Callable[[float, str], None], portions: int
) -> int:
    """Walk a trace, or one of so many portions; the count of its events."""
    count = 0
    with _no_cycles():
        for run in trace.runs():
            collector.add(run)
            count += len(run)
            _bounded(count)
            progress(
                min(1.0, portions * trace.read / max(1, trace.size)), f"{portions * count:,} events read"
            )
    return count


@contextlib.contextmanager
def _no_cycles():
    """Without looking for garbage: events hold no cycles, and looking for some among so many costs a sixth of
    the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _bounded(count: int) -> None:
    if count > MAX_EVENTS:
        raise ValueError(f"it holds more than {MAX_EVENTS:,} events; profile fewer steps")


class _Helper:
    """A process that reads one portion; it ends with the context, or when this process does."""

    def __init__(self, path: Path, begin: int, end: int | None):
        python_path = paths.python_path()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "fusescope.profiling.chrome.parallel",
                str(path),
                str(begin),
                "" if end is None else str(end),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": python_path},
        )

    def __enter__(self) -> _Helper:
        return self

    def __exit__(self, *_) -> None:
        self.process.kill()
        self.process.stdout.close()
        self.process.wait()

    def result(self, waiting: Callable[[], None]) -> dict:
        """What it found; ValueError where it found that its portion is none. ``waiting`` is called meanwhile,
        and may raise."""
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            while not ready.select(_POLL_S):
                waiting()
        try:
            return pickle.load(self.process.stdout)  # written by our own code, of numbers and texts alone
        except (EOFError, pickle.UnpicklingError):
            raise ValueError("a portion of the file could not be read by itself") from None


def _help(path: str, begin: str, end: str) -> int:
    parent, answers = os.getppid(), os.fdopen(os.dup(1), "wb")
    trace, collector = ChromeTrace(Path(path), begin=int(begin), end=int(end) if end else None), Collector()

    def orphan(share: float, text: str) -> None:
        if os.getppid() != parent:
            raise SystemExit(1)

    try:
        count = _collect(trace, collector, orphan, 1)
    except ValueError:
        return 1
    found = {
        "collected": collector.packed(),
        "metadata": trace.metadata,
        "notes": trace.notes,
        "count": count,
    }
    pickle.dump(found, answers, protocol=5)
    answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(_help(*sys.argv[1:]))
