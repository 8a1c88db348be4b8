"""The worker: one process a job. It holds the run folder and the device, and alone writes what the job says.

    python -m backend.jobs.worker RUN [--inline]

It runs no torch operation itself: a forked body does the work, so that a crash, a hang or a poisoned CUDA context is booked
on the case that caused it and the rest goes on in a new body. --inline works without a body, for profilers that look at one
process (ncu, compute-sanitizer); nothing is booked then where the process dies.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from backend.core.errors import Cancelled, RunError
from backend.core.records import Record
from backend.jobs import body
from backend.jobs.channel import Inbox, send
from backend.jobs.gpu_lock import Ticket, holder
from backend.store import folder, library

_TICK_S = 0.05
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def cancel_grace_s() -> float:
    """Seconds a body is given to stop by itself (FUSESCOPE_CANCEL_GRACE_S, default 5)."""
    return float(os.environ.get("FUSESCOPE_CANCEL_GRACE_S", 5))


class Stopped(Exception):
    """The operating system told the worker to stop."""


class Worker:
    """Runs one job to its end. ``work`` returns the run's final status."""

    def __init__(self, writer: folder.Writer):
        self.writer = writer
        self.run = folder.read(writer.path)
        self.begun = bool(writer.skip())  # there are records from an earlier start
        self.ticket: Ticket | None = None
        self.limit: float | None = None  # monotonic time at which the whole job is stopped
        self.place: int | None = None  # in the device's queue, as last shown

    def work(self) -> str:
        try:
            for number in range(10_000):
                outcome = self._one_body(first=number == 0)
                if outcome is not None:
                    return self._finish(*outcome)
            return self._finish("failed", "the job's process died too many times")
        except Stopped as e:
            return self._finish("interrupted", f"the worker was told to stop ({e}); resume it to measure what is missing")
        finally:
            if self.ticket:
                self.ticket.close()

    def _finish(self, status: str, reason: str | None) -> str:
        self.writer.state(status, reason)
        return status

    def _one_body(self, first: bool) -> tuple[str, str | None] | None:
        """Run a body to its end: the run's status and reason, or None where a new body is to go on."""
        watch = _Watch(self, first)
        try:
            return watch.until_the_end()
        finally:
            watch.clear_away()

    def take_device(self, lock: str, device: str) -> bool:
        """One try to get the device; the place in its queue is shown. True once it is held."""
        if self.ticket is None:
            self.ticket = Ticket(lock, self.run.id)
        place = self.ticket.advance()
        if place == 0:
            self.writer.queued(device, lock, 0, "starting")
        elif place != self.place:
            who = holder(lock) or {}
            by = f"{who.get('run')} of {who.get('user')}, process {who.get('pid')}" if who.get("run") else "another job"
            self.writer.queued(device, lock, place, f"waiting for {device}: place {place} in the queue; now {by}")
        self.place = place
        return place == 0


class _Watch:
    """One body from its fork to its end."""

    def __init__(self, worker: Worker, first: bool):
        self.worker, self.writer = worker, worker.writer
        self.log_from = os.fstat(self.writer.log_descriptor()).st_size
        self.pairs_before = len(self.writer.skip())
        run, skip = worker.run, self.writer.skip()
        held = self.writer.descriptors() + (worker.ticket.descriptors() if worker.ticket else [])
        known = dict(run.environment) if worker.begun else {}
        self.pid, self.sock = body.fork(self.writer.path, run.kind, dict(run.spec), skip, first, known, held)
        self.inbox = Inbox(self.sock)
        self.code: int | None = None  # wait status of the dead body
        self.ended: dict | None = None  # what the body said last
        self.waits_for: tuple[str, str] | None = None  # the lock and the name of the device it waits for
        self.doing: tuple[str, str, float] | None = None
        self.until: float | None = None  # monotonic time at which what it does is over its deadline
        self.kill_at: float | None = None  # set once a stop was asked for
        self.killed_for: str | None = None

    def until_the_end(self) -> tuple[str, str | None] | None:
        while self.code is None:
            for message in self.inbox.wait(_TICK_S):
                self._take(message["do"], message["data"])
            self._look_around()
            if self.inbox.closed or self.ended:
                self._reap(timeout_s=5.0)
            else:
                self._reap(timeout_s=0)
        while messages := self.inbox.wait(0):  # what it said before it died
            for message in messages:
                self._take(message["do"], message["data"])
        return self._judge()

    def clear_away(self) -> None:
        """Kill whatever is left of the body and its own children."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if self.code is None:
            self._reap(timeout_s=None)
        self.sock.close()

    def _take(self, do: str, data: dict) -> None:
        if do == "record":
            record = Record.from_json(data)
            self.writer.record(record)
            self._answer("recorded")
            if self.doing and self.doing[:2] == (record.case_key, record.impl):
                self.until = None  # it is done; a crash from here on is still said to have come after it
        elif do == "doing":
            self.doing = (data["case_key"], data["impl"], data["deadline_s"])
            self.until = time.monotonic() + data["deadline_s"]
        elif do == "ready":
            self._ready(**data)
        elif do == "end":
            self.ended = data
        elif do == "environment":
            self.writer.environment(**data)
        else:
            {"samples": self.writer.samples, "progress": self.writer.progress, "log": self.writer.log}[do](**data)

    def _ready(self, lock: str | None, device: str | None, deadline_s: float | None) -> None:
        self.deadline_s = deadline_s
        if lock is None or (self.worker.ticket and self.worker.ticket.held):
            self._go()
        else:
            self.waits_for = (lock, device)

    def _go(self) -> None:
        if self.worker.limit is None:
            self.writer.state("running")
            self.worker.limit = time.monotonic() + self.deadline_s if self.deadline_s else float("inf")
        self.waits_for = None
        self._answer("go")

    def _answer(self, word: str) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it died: its wait status will say so
            send(self.sock, {"do": word})

    def _look_around(self) -> None:
        """What happens without the body's saying so: a free device, a wish to stop, a deadline."""
        now = time.monotonic()
        self.writer.flush_progress()
        if self.kill_at is None and self.writer.cancel_requested():
            self.kill_at = now + cancel_grace_s()
            self._answer("cancel")
        elif self.kill_at is not None and now > self.kill_at:
            self._kill("cancel")
        elif self.until is not None and now > self.until:
            self._kill("case")
        elif self.worker.limit is not None and now > self.worker.limit:
            self._kill("job")
        elif self.waits_for and self.worker.take_device(*self.waits_for):
            self._go()

    def _kill(self, why: str) -> None:
        if self.killed_for is None and self.ended is None:
            self.killed_for = why
            os.killpg(self.pid, signal.SIGKILL)

    def _reap(self, timeout_s: float | None) -> None:
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            pid, status = os.waitpid(self.pid, 0 if end is None else os.WNOHANG)
            if pid:
                self.code = status
                return
            if time.monotonic() >= end:
                if timeout_s:  # it said its last word, or closed the pipe, and still lives: nothing more will come of it
                    os.killpg(self.pid, signal.SIGKILL)
                    end = None
                    continue
                return
            time.sleep(0.002)

    def _judge(self) -> tuple[str, str | None] | None:
        ended, new_pairs = self.ended, len(self.writer.skip()) - self.pairs_before
        if self.kill_at is not None and (self.killed_for == "cancel" or ended is None or ended["cancelled"]):
            return "cancelled", "stopped on request"
        if self.killed_for == "job":
            return "failed", f"the job took longer than its limit of {self.deadline_s:g} s; resume it to go on where it was"
        if ended and ended["cancelled"]:
            return "cancelled", "stopped by itself"
        if ended and ended["error"] is None:
            return "done", None
        if ended and not ended["poisoned"]:
            return "failed", ended["error"]
        status, reason = self._cause()
        self.writer.log(f"the job's process ended: {reason}")
        if self._book(status, reason) or new_pairs:
            return None
        what = f" while it worked on {self.doing[1]}, which has its record already" if self.doing else ""
        return "failed", f"{reason}{what}"

    def _cause(self) -> tuple[str, str]:
        if self.ended:
            return "crashed", self.ended["error"]
        if self.killed_for == "case":
            return "timeout", f"took longer than its deadline of {self.doing[2]:g} s and was stopped"
        return "crashed", f"the process ended by {_ending(self.code)}{self._last_words()}"

    def _book(self, status: str, reason: str) -> bool:
        """A record for what was being done when the body died; False where there is nothing to book it on."""
        if self.doing is None or self.doing[:2] in self.writer.skip():
            return False
        op, case, dtype, device = json.loads(self.doing[0])
        self.writer.record(Record(op, self.doing[1], case, dtype, device, status, reason))
        return True

    def _last_words(self) -> str:
        """The end of what the body wrote to its error output, without the interpreter's own stack dump."""
        text = os.pread(self.writer.log_descriptor(), 1 << 16, self.log_from).decode(errors="replace")
        lines = [line.strip() for line in text.partition("Fatal Python error:")[0].splitlines() if line.strip()]
        return f": {' | '.join(lines[-3:])[-400:]}" if lines else ""


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in signal.Signals.__members__.values() else f"signal {number}"
        hint = " (perhaps the system was out of memory)" if number == signal.SIGKILL else ""
        return f"{name} ({signal.strsignal(number)}){hint}"
    return f"exit code {os.WEXITSTATUS(status)}"


def main(arguments: list[str]) -> int:
    """Run the job of a run folder; 0 done, 1 not done, 2 no such run or somebody else runs it."""
    parser = argparse.ArgumentParser(prog="python -m backend.jobs.worker", description="Run the job of one run folder.")
    parser.add_argument("run", help="a run's id, or the path of its folder")
    parser.add_argument("--inline", action="store_true", help="work in this very process (for profilers)")
    parser.add_argument("--lock-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--note", help=argparse.SUPPRESS)
    a = parser.parse_args(arguments)
    try:
        path = Path(a.run) if Path(a.run).is_dir() else library.find(a.run)
        if folder.is_recorded(path):
            raise RunError(f"{path.name} is a recorded run and read-only")
        writer = folder.Writer(path.resolve(), a.lock_fd)
    except (RunError, ValueError) as e:
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
        if a.inline:
            return _inline(writer)
        _output_to(writer.log_descriptor())
        return 0 if Worker(writer).work() == "done" else 1
    except RunError as e:  # the folder is lost, or the disk is full
        _give_up(writer, str(e))
        return 1
    except Exception as e:
        _give_up(writer, f"the worker itself failed: {body.one_sentence(e)}")
        raise
    finally:
        writer.close()


def _stop(number: int, _frame) -> None:
    for other in _STOPS:
        signal.signal(other, signal.SIG_IGN)  # the stop is being carried out
    raise Stopped(signal.Signals(number).name)


def _give_up(writer: folder.Writer, reason: str) -> None:
    """Mark the run failed, if the folder can be written at all, and say why on the error output (the log, as a rule)."""
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
            time.sleep(_TICK_S)
        self._worker.writer.state("running")


def _inline(writer: folder.Writer) -> int:
    worker = Worker(writer)
    try:
        known = dict(worker.run.environment) if worker.begun else {}
        body.perform(worker.run.kind, dict(worker.run.spec), _Inline(worker), True, known)
    except Cancelled:
        writer.state("cancelled", "stopped on request")
    except Stopped as e:
        writer.state("interrupted", f"the worker was told to stop ({e})")
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
