"""What a worker of a cluster does: units of work, each in a measuring process, and who it is.

The worker itself runs no kernel. It asks a process of its own (jobs/process/members.py), so that a kernel
that crashes or hangs costs one implementation on one case and not the worker. A worker is lost when its
machine is, or when the system kills it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import fusescope
from fusescope.core.errors import Cancelled
from fusescope.core.machine import environment
from fusescope.jobs.cluster import answers
from fusescope.jobs.cluster.deploy import CORES
from fusescope.jobs.process.gpu_lock import Ticket, queued
from fusescope.jobs.process.members import Member

_IDLE_S = 30.0  # after which a process nobody asks is ended: it holds memory of the device
_SAY_EVERY_S = 1.0
BEGIN_EVERY_S = 0.25  # shorter units are not all announced
_POLL_S = 0.1


def describe(device: str) -> dict[str, Any]:
    """This worker's facts: host, process, user, version, and core.machine.environment's of the device.
    ValueError where it has no such device."""
    about = {"host": os.uname().nodename, "pid": os.getpid(), "user": os.getuid()}
    return about | {"version": fusescope.__version__, "environment": environment.collect(device)}


def measure(order: Mapping[str, Any]) -> dict[str, Any]:
    """Measure the units of an order one after the other: {"found": [what each found], "error": the sentence
    of the one that could not be measured, or None}. After limit_s no further unit is begun.

    order: run, kind, topic (of Dask's events, to which is said what begins), limit_s, lock (the device's, or
    None where the submitting job holds it), where (of this worker, for its records) and units, each {"key",
    "spec", "known": [[case_key, impl, status], …]}. What a unit found: ``answers.make``.
    Raises Cancelled when nobody waits for it any more.
    """
    here = _Here(order)
    measured: list[answers.Measured] = []
    error = None
    try:
        here.wait_for_device()
        end = time.monotonic() + order["limit_s"]
        for unit in order["units"]:
            if measured and time.monotonic() > end:
                break
            here.begin(unit)
            measured.append(_member.measure(order, unit, here))
    except Cancelled:
        _member.end()
        raise
    except Exception as e:
        _member.end()
        error = " ".join(str(e).split()) or type(e).__name__
    finally:
        here.end()
        _member.rest()
    return answers.make(order, measured, error)


def forget() -> None:
    """End this worker's measuring process, which holds memory of the device."""
    _member.end()


class _Here:
    """The task that runs: whether it is still wanted, what it says, and the device's lock."""

    def __init__(self, order: Mapping[str, Any]):
        from distributed import get_worker

        self.order, self.worker = order, get_worker()
        self.task = self.worker.get_current_task()
        self.ticket: Ticket | None = None
        self.unit, self.said_at, self.begun_at = "", 0.0, 0.0

    def check(self) -> None:
        """Raise Cancelled where the submitter asked for that, or is gone."""
        state = self.worker.state.tasks.get(self.task)
        if state is None or state.state != "executing":
            raise Cancelled

    def wait_for_device(self) -> None:
        if self.order["lock"]:
            self.ticket = Ticket(self.order["lock"], f"{self.order['run']} (cluster)")
            while place := self.ticket.advance():
                self.check()
                self.say(queued("its device", place))
                time.sleep(_POLL_S)

    def begin(self, unit: Mapping[str, Any]) -> None:
        self.check()
        self.unit = unit["key"]
        if time.monotonic() - self.begun_at >= BEGIN_EVERY_S:
            self.begun_at, self.said_at = time.monotonic(), 0.0
            self.say("")

    def say(self, text: str) -> None:
        """Tell the submitter what this worker does, at most once a second within a unit."""
        if time.monotonic() - self.said_at >= _SAY_EVERY_S:
            self.said_at = time.monotonic()
            message = {"task": self.task, "unit": self.unit, "text": text}
            self.worker.log_event(self.order["topic"], message)

    def end(self) -> None:
        if self.ticket:
            self.ticket.close()


class _Listener:
    """The Reporter of the measuring process's asking end."""

    def __init__(self, here: _Here):
        self._here, self.lines, self.facts = here, [], {}

    def check(self) -> None:
        self._here.check()

    def log(self, text: str) -> None:
        self.lines.append(text.removeprefix("process 1: "))

    def environment(self, **facts: Any) -> None:
        self.facts |= facts

    def doing(self, case_key: str, impl: str, deadline_s: float) -> None:
        """The asking end itself sees to the deadline."""


class _Process:
    """This worker's measuring process, kept from order to order of one run."""

    def __init__(self):
        self._lock = threading.RLock()  # of the idle timer
        self._member: Member | None = None
        self._run: tuple[str, str] | None = None
        self._timer: threading.Timer | None = None
        self._begun = 0

    def measure(self, order: Mapping[str, Any], unit: Mapping[str, Any], here: _Here) -> answers.Measured:
        with self._lock:
            self._wake()
            if self._run != (order["run"], order["kind"]):
                self.end()
                self._run = order["run"], order["kind"]
            listener = _Listener(here)
            return self._ask(order, unit, listener, lambda n, done, total, text, eta: here.say(text))

    def _ask(self, order, unit, listener: _Listener, progress: Callable[..., None]) -> answers.Measured:
        begun = time.monotonic()
        _keep_to_own_cores()
        if self._member is None:
            self._member = Member(order["kind"], 0, 1, listener, progress)
        self._member.reporter, self._member.progress = listener, progress
        known = {(case, impl): status for case, impl, status in unit["known"]}
        records, samples = self._member.measure(unit["spec"], known, [])
        seconds = time.monotonic() - begun
        about = listener.lines, listener.facts, seconds
        return answers.Measured(unit["key"], [*records.values()], samples, *about)

    def rest(self) -> None:
        """Have the process ended unless there is another order soon."""
        with self._lock:
            self._wake()
            if self._member is not None:
                self._timer = threading.Timer(_IDLE_S, self.end)
                self._timer.daemon = True
                self._timer.start()

    def end(self) -> None:
        with self._lock:
            self._wake()
            if self._member is not None:
                self._member.end()
                self._member, self._run = None, None

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_member = _Process()


def _keep_to_own_cores() -> None:
    """Measuring processes that this thread starts run on the cores that are this worker's own."""
    if own := os.environ.get(CORES):
        os.sched_setaffinity(0, {int(core) for core in own.split(",")})
