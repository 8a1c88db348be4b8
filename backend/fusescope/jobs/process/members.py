"""The asking end of a measuring process (member.py): start it, ask for a case, listen, book what it does not
live to say.

A process that crashes, hangs or poisons its CUDA context costs one implementation on one case; another takes
its place.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from fusescope.core import paths
from fusescope.core.records import Record
from fusescope.core.reporter import Reporter
from fusescope.jobs.process.channel import Inbox, send

_POLL_S = 0.2
_GRACE_S = 30.0  # that the worker waits longer than we do before it takes this whole process for hung
_MOST_STARTS = 1000

Key = tuple[str, str]
"""case_key and implementation."""


class Member:
    """One of the processes, started when it is first needed and again whenever it has died."""

    def __init__(self, kind: str, number: int, count: int, reporter: Reporter, progress: Callable[..., None]):
        self.kind, self.number, self.reporter, self.progress = kind, number, reporter, progress
        self.name = f"process {number + 1} of {count}"
        self._process: subprocess.Popen | None = None

    @property
    def pid(self) -> int | None:
        return self._process and self._process.pid

    def measure(
        self, spec: Mapping[str, Any], known: Mapping[Key, str], siblings: list[int]
    ) -> tuple[dict[Key, Record], list[dict]]:
        self.records: dict[Key, Record] = {}
        self.samples: list[dict] = []
        for _ in range(_MOST_STARTS):
            self.doing: tuple[str, str, float, float] | None = None  # case, impl, seconds, until when
            statuses = known | {k: r.status for k, r in self.records.items()}
            self.samples = [s for s in self.samples if (s["case_key"], s["impl"]) in self.records]
            if self._once({"spec": spec, "known": _pairs(statuses), "siblings": siblings}):
                return self.records, self.samples
            self.end()
        raise RuntimeError(f"{self.name} died too many times")

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._socket.close()
            self._process = None

    def _start(self) -> None:
        self._socket, its = socket.socketpair()
        self._inbox = Inbox(self._socket)
        self._process = start(self.kind, its)
        its.close()

    def _once(self, asked: dict) -> bool:
        """Ask for a case and listen until its end; whether all of it was measured."""
        waited = self._process is not None
        if not waited:
            self._start()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its end is seen below
            send(self._socket, asked)
        while not self._inbox.closed:
            for message in self._inbox.wait(_POLL_S):
                waited = False
                do, data = message["do"], message["data"]
                if do == "end":
                    return self._ended(data)
                getattr(self, f"_{do}")(data)
                if do == "record":
                    send(self._socket, {"do": "recorded"})
            self.reporter.check()
            if self.doing and time.monotonic() > self.doing[3]:
                self._book("timeout", f"took longer than its deadline of {self.doing[2]:g} s and was stopped")
                return False
        if waited:
            return False  # it died before it began: no fault of what is measured
        code = self._process.wait()
        self._book("crashed", f"its process died ({'signal' if code < 0 else 'exit code'} {abs(code)})")
        return False

    def _ended(self, data: Mapping[str, Any]) -> bool:
        if data["poisoned"]:
            self._book("crashed", data["error"])
            return False
        if data["error"]:
            raise RuntimeError(f"{self.name}: {data['error']}")
        return True

    def _book(self, status: str, reason: str) -> None:
        """A record of what went wrong, for what the process was doing."""
        if self.doing is None or self.doing[:2] in self.records:
            raise RuntimeError(f"{self.name}: {reason}")
        op, case, dtype, device = json.loads(self.doing[0])
        self.records[self.doing[:2]] = Record(op, self.doing[1], case, dtype, device, status, reason)

    # what a process says

    def _record(self, data: dict) -> None:
        record = Record.from_json(data)
        self.records[record.case_key, record.impl] = record

    def _samples(self, data: dict) -> None:
        self.samples.append(data)

    def _doing(self, data: dict) -> None:
        until = time.monotonic() + data["deadline_s"]
        self.doing = (data["case_key"], data["impl"], data["deadline_s"], until)
        self.reporter.doing(data["case_key"], data["impl"], data["deadline_s"] + _GRACE_S)

    def _progress(self, data: dict) -> None:
        self.progress(self.number, data["done"], data["total"], data["message"], data["eta_s"])

    def _log(self, data: dict) -> None:
        self.reporter.log(f"process {self.number + 1}: {data['text']}")

    def _environment(self, data: dict) -> None:
        """Of the first process; that the machine was busy at any case stays."""
        if self.number == 0:
            self.reporter.environment(**{k: v for k, v in data.items() if k != "busy" or v})


def start(kind: str, its: socket.socket) -> subprocess.Popen:
    """A new interpreter that measures what it receives over its end of a socket pair."""
    command = [sys.executable, "-m", "fusescope.jobs.process.member", kind, str(its.fileno())]
    env = os.environ | {"PYTHONPATH": paths.python_path()}
    return subprocess.Popen(command, pass_fds=[its.fileno()], env=env, stdin=subprocess.DEVNULL)


def _pairs(statuses: Mapping[Key, str]) -> list[list[str]]:
    return [[*key, status] for key, status in statuses.items()]
