"""The worker: one process per job, which holds the run folder and the device and alone writes the results.

    python -m fusescope.jobs.worker RUN [--inline]

It runs no torch operation itself: a forked body does the work, so that a crash, a hang or a poisoned CUDA
context is booked on the case that caused it and the rest goes on in a new body. --inline works without a
body, for profilers that look at one process (ncu, compute-sanitizer); nothing is booked then where the
process dies.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

from fusescope.core.errors import Cancelled, RunError
from fusescope.jobs import kinds
from fusescope.jobs.process import body, scratch
from fusescope.jobs.process.gpu_lock import Ticket, holder, queued, user
from fusescope.jobs.process.watch import TICK_S, Watch, cancel_grace_s
from fusescope.store import folder, library

_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stopped(Exception):
    """The operating system sent the worker a stop signal."""


class Worker:
    """Runs one job to its end. ``work`` returns the run's final status."""

    def __init__(self, writer: folder.Writer, ticket: Ticket | None = None):
        self.writer = writer
        self.run = folder.read(writer.path)
        self.begun = bool(writer.skip())  # there are records from an earlier start
        self.ticket = ticket  # the place in a device's queue, taken when the job was submitted
        self.limit: float | None = None  # monotonic time at which the whole job is stopped
        self.place: int | None = None  # in the device's queue, as last shown
        self.warned: str | None = None  # what the log says of the queue

    def work(self) -> str:
        try:
            for number in range(10_000):
                outcome = self._one_body(first=number == 0)
                if outcome is not None:
                    return self._finish(*outcome)
            return self._finish("failed", "the job's process died too many times")
        except Stopped as e:
            return _end_stopped(self.writer, e)
        finally:
            if self.ticket:
                self.ticket.close()
            scratch.tidy()  # of a body that was killed

    def _finish(self, status: str, reason: str | None) -> str:
        self.writer.state(status, reason)
        return status

    def _one_body(self, first: bool) -> tuple[str, str | None] | None:
        """Run a body to its end: the run's status and reason, or None where a new body is to go on."""
        watch = Watch(self, first)
        try:
            return watch.until_the_end()
        finally:
            watch.clear_away()

    def take_device(self, lock: str, device: str) -> bool:
        """One try to get the device; the place in its queue is shown. True once it is held."""
        if self.ticket is not None and self.ticket.device != lock:
            self.ticket.close()
            self.ticket = None
        if self.ticket is None:
            self.ticket = Ticket(lock, self.run.id)
        place = self.ticket.advance()
        if self.ticket.warning and self.warned != self.ticket.warning:
            self.warned = self.ticket.warning
            self.writer.log(self.warned)
        if place == 0:
            self.writer.queued(device, lock, 0, "starting")
        elif place != self.place:
            self.writer.queued(device, lock, place, f"{queued(device, place)}; now {_named(holder(lock))}")
        self.place = place
        return place == 0


def _named(holds: dict | None) -> str:
    """The job that has the device, for those who wait: its run's title, and of another user who it is; of a
    run that cannot be read here the process."""
    if not (holds and holds["run"]):
        return "another job"
    try:
        name = kinds.name(folder.read(library.find(holds["run"])))
    except RunError:
        return f"a job of {holds['user']}, process {holds['pid']}"
    return name if holds["user"] == user(os.getuid()) else f"{name}, of {holds['user']}"


def main(arguments: list[str]) -> int:
    """Run the job of a run folder; 0 done, 1 not done, 2 no such run, or another worker has it."""
    parser = argparse.ArgumentParser(
        prog="python -m fusescope.jobs.worker", description="Run the job of one run folder."
    )
    parser.add_argument("run", help="a run's id, or the path of its folder")
    parser.add_argument("--inline", action="store_true", help="work in this very process (for profilers)")
    parser.add_argument("--lock-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--ticket-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--ticket", help=argparse.SUPPRESS)
    parser.add_argument("--note", help=argparse.SUPPRESS)
    a = parser.parse_args(arguments)
    try:
        path = Path(a.run) if Path(a.run).is_dir() else library.find(a.run)
        if folder.is_recorded(path):
            raise RunError(f"{path.name} is a recorded run and read-only")
        writer = folder.Writer(path.resolve(), a.lock_fd)
    except (RunError, ValueError) as e:  # its reason is the last line of the log
        print(e, file=sys.stderr)
        return 2
    for number in _STOPS:
        signal.signal(number, _stop)
    try:
        if a.note:
            writer.log(a.note)
        writer.sign()
        writer.state("queued")
        writer.progress(0, 0, "starting")
        cancel_grace_s()  # refused now, not at the first cancel
        if a.inline:
            return _inline(writer)
        _output_to(writer.log_descriptor())
        ticket = Ticket.adopt(a.ticket_fd, a.ticket) if a.ticket else None
        return 0 if Worker(writer, ticket).work() == "done" else 1
    except Stopped as e:  # before or after the work itself
        with contextlib.suppress(RunError):
            _end_stopped(writer, e)
        return 1
    except (RunError, OSError, ValueError) as e:  # the folder is lost, the disk full, a variable wrong
        _give_up(writer, str(e))
        return 1
    except Exception as e:
        kept = body.keep_traceback(writer)
        _give_up(writer, f"the worker itself failed: {body.one_sentence(e)}{kept}")
        return 1
    finally:
        writer.close()


def _stop(number: int, _frame) -> None:
    for other in _STOPS:
        signal.signal(other, signal.SIG_IGN)  # the stop is being carried out
    raise Stopped(signal.Signals(number).name)


def _end_stopped(writer: folder.Writer, e: Stopped) -> str:
    """Mark the run interrupted, unless it had ended in this very moment; gives how it ended."""
    run = folder.read(writer.path)
    if not run.live:
        return run.status
    writer.state("interrupted", f"the worker was stopped ({e}); resume it to measure what is missing")
    return "interrupted"


def _give_up(writer: folder.Writer, reason: str) -> None:
    """Mark the run failed, if the folder can be written at all, and say why on the error output (the log, as
    a rule)."""
    try:
        writer.state("failed", reason)
    except RunError as e:
        reason = f"{reason}; {e}"
    with contextlib.suppress(OSError):  # the log may lie on the very disk that is full
        print(reason, file=sys.stderr, flush=True)


def _output_to(log: int) -> None:
    """What the job and its libraries print, at whatever level, goes to the run's log."""
    os.dup2(log, 1)
    os.dup2(log, 2)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


class _Inline:
    """The writer as the job's Reporter, with the one word that a body says beyond it."""

    def __init__(self, worker: Worker):
        self._worker = worker

    def __getattr__(self, name: str):
        return getattr(self._worker.writer, name)

    def ready(self, lock: str | None, device: str | None, deadline_s: float | None) -> None:
        while lock and not self._worker.take_device(lock, device):
            self._worker.writer.check()
            time.sleep(TICK_S)
        self._worker.writer.state("running")


def _beat(writer: folder.Writer) -> None:
    while True:
        writer.beat()
        time.sleep(TICK_S)


def _inline(writer: folder.Writer) -> int:
    worker = Worker(writer)
    threading.Thread(target=_beat, args=(writer,), daemon=True).start()
    try:
        known = dict(worker.run.environment) if worker.begun else {}
        body.perform(worker.run.kind, dict(worker.run.spec), _Inline(worker), True, known)
    except Cancelled:
        writer.state("cancelled", "cancelled by user")
    except Stopped as e:
        writer.state("interrupted", f"the worker was stopped ({e})")
    except RunError:
        raise
    except Exception as e:
        writer.state("failed", body.one_sentence(e))
        print(body.one_sentence(e), file=sys.stderr)
    else:
        writer.state("done")
        return 0
    finally:
        if worker.ticket:
            worker.ticket.close()
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
