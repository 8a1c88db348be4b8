"""One body of a job from its fork to its end: what it says is written down, what it does not live to say is
booked."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time

from fusescope.core.machine import runtime
from fusescope.core.records import Record
from fusescope.core.schema.lines import Lines
from fusescope.jobs.process import body
from fusescope.jobs.process.channel import Inbox, send

TICK_S = 0.05


def cancel_grace_s() -> float:
    """Seconds a body is given to stop by itself (FUSESCOPE_CANCEL_GRACE_S, default 2): one in the middle of a
    compilation, an import or a long call cannot hear of it."""
    return runtime.seconds("FUSESCOPE_CANCEL_GRACE_S", 2)


class Watch:
    """One body of a ``Worker``; ``until_the_end`` follows it, ``clear_away`` leaves nothing of it running."""

    def __init__(self, worker, first: bool):
        self.worker, self.writer = worker, worker.writer
        self.log_from = os.fstat(self.writer.log_descriptor()).st_size
        self.pairs_before = len(self.writer.skip())
        run, recorded = worker.run, self.writer.statuses()
        descriptors = self.writer.descriptors() + (worker.ticket.descriptors() if worker.ticket else [])
        known = dict(run.environment) if worker.begun else {}
        self.pid, self.sock = body.fork(
            self.writer.path, run.kind, dict(run.spec), recorded, first, known, descriptors
        )
        self.inbox = Inbox(self.sock)
        self.code: int | None = None  # wait status of the dead body
        self.ended: dict | None = None  # what the body said last
        self.waits_for: tuple[str, str] | None = None  # the lock and the name of the device it waits for
        self.doing: tuple[str, str, float] | None = None
        self.until: float | None = None  # monotonic time at which what it does is over its deadline
        self.kill_at: float | None = None  # set once a stop was requested
        self.killed_for: str | None = None

    def until_the_end(self) -> tuple[str, str | None] | None:
        """The run's final status and reason, or None where a new body is to go on with what is left."""
        while self.code is None:
            for message in self.inbox.wait(TICK_S):
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
        elif do == "book":
            self.writer.book([Lines(*one) for one in data["found"]])
            self._answer("recorded")
        elif do == "doing":
            now = data["case_key"], data["impl"]
            if self.doing is None or self.doing[:2] != now:
                self.log_from = max(self.log_from, data["written"])
            self.doing = (*now, data["deadline_s"])
            self.until = time.monotonic() + data["deadline_s"]
        elif do == "ready":
            self._ready(**data)
        elif do == "end":
            self.ended = data
        elif do == "environment":
            self.writer.environment(**data)
        else:
            {"samples": self.writer.samples, "progress": self.writer.progress, "log": self.writer.log}[do](
                **data
            )

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
        with contextlib.suppress(
            BrokenPipeError, ConnectionResetError
        ):  # it died: its wait status will say so
            send(self.sock, {"do": word})

    def _look_around(self) -> None:
        """What happens without the body's saying so: a free device, a wish to stop, a deadline."""
        now = time.monotonic()
        self.writer.beat()
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
                if (
                    timeout_s
                ):  # it said its last word, or closed the pipe, and still lives: nothing more will come of it
                    os.killpg(self.pid, signal.SIGKILL)
                    end = None
                    continue
                return
            time.sleep(0.002)

    def _judge(self) -> tuple[str, str | None] | None:
        ended, new_pairs = self.ended, len(self.writer.skip()) - self.pairs_before
        if self.kill_at is not None and (self.killed_for == "cancel" or ended is None or ended["cancelled"]):
            return "cancelled", "cancelled by user"
        if self.killed_for == "job":
            return (
                "failed",
                f"the job took longer than its limit of {self.deadline_s:g} s; resume it to continue",
            )
        if ended and ended["cancelled"]:
            return "cancelled", "cancelled by the job itself"
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
        lines = [
            line.strip() for line in text.partition("Fatal Python error:")[0].splitlines() if line.strip()
        ]
        return f": {' | '.join(lines[-3:])[-400:]}" if lines else ""


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = (
            signal.Signals(number).name
            if number in signal.Signals.__members__.values()
            else f"signal {number}"
        )
        hint = " (perhaps the system was out of memory)" if number == signal.SIGKILL else ""
        return f"{name} ({signal.strsignal(number)}){hint}"
    return f"exit code {os.WEXITSTATUS(status)}"
