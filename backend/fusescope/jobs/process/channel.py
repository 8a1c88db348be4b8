"""The pipe between the worker and the body: JSON values, each after its length in four bytes."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fusescope.core.errors import Cancelled
from fusescope.core.records import Record
from fusescope.core.schema.lines import Lines
from fusescope.store.writer import artifact_path

_LENGTH = struct.Struct("<I")


def send(sock: socket.socket, message: dict) -> None:
    """Send one message; BrokenPipeError or ConnectionResetError where the other end is gone."""
    text = json.dumps(message, separators=(",", ":")).encode()
    sock.sendall(_LENGTH.pack(len(text)) + text)


class Inbox:
    """Cuts what arrives on a socket into messages."""

    def __init__(self, sock: socket.socket):
        self._sock = sock
        self._buffer = bytearray()
        self.closed = False

    def wait(self, timeout_s: float | None) -> list[dict]:
        """The messages that arrived within the time (seconds; None waits for one); empty on a time-out or the
        end."""
        found = self._whole()
        if found or self.closed:
            return found
        ready, _, _ = select.select([self._sock], [], [], timeout_s)
        if not ready:
            return []
        try:
            text = self._sock.recv(1 << 20)
        except ConnectionResetError:
            text = b""
        if not text:
            self.closed = True
        self._buffer += text
        return self._whole()

    def _whole(self) -> list[dict]:
        found = []
        while len(self._buffer) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer)
            if len(self._buffer) < _LENGTH.size + size:
                break
            found.append(json.loads(self._buffer[_LENGTH.size : _LENGTH.size + size]))
            del self._buffer[: _LENGTH.size + size]
        return found


class BodyReporter:
    """The Reporter a job kind is given: every word goes to the worker, which alone writes.

    ``record`` returns once the worker has it on file. Where the worker is gone, BrokenPipeError ends the
    body.
    """

    def __init__(self, sock: socket.socket, run: Path, known: dict[tuple[str, str], str]):
        self._sock, self._run = sock, run
        self._inbox = Inbox(sock)
        self._known = dict(known)
        self._cancelled = False
        self._lock = threading.RLock()

    def record(self, record: Record) -> None:
        with self._lock:
            self._say("record", record.to_json())
            self._await("recorded")
            self._known[record.case_key, record.impl] = record.status

    def book(self, found: Sequence[Lines]) -> None:
        """One message for all of them; returns once the worker has the last one on file."""
        with self._lock:
            self._say("book", {"found": found})
            self._await("recorded")
            self._known |= {(one.case_key, one.impl): one.status for one in found}

    def samples(
        self, case_key: str, impl: str, mode: str, milliseconds: list[float], state: list[dict] | None = None
    ) -> None:
        line = {
            "case_key": case_key,
            "impl": impl,
            "mode": mode,
            "milliseconds": [float(x) for x in milliseconds],
            "state": state,
        }
        self._say("samples", line)

    def doing(self, case_key: str, impl: str, deadline_s: float) -> None:
        written = os.fstat(2).st_size  # of the log, so that its last words are told from those before
        said = {"case_key": case_key, "impl": impl, "deadline_s": float(deadline_s), "written": written}
        self._say("doing", said)

    def progress(self, done: int, total: int, message: str, eta_s: float | None = None) -> None:
        self._say("progress", {"done": int(done), "total": int(total), "message": message, "eta_s": eta_s})

    def log(self, text: str) -> None:
        self._say("log", {"text": str(text)})

    def environment(self, **facts: Any) -> None:
        self._say("environment", facts)

    def artifact(self, name: str) -> Path:
        return artifact_path(self._run, name)

    def skip(self) -> set[tuple[str, str]]:
        return set(self._known)

    def statuses(self) -> dict[tuple[str, str], str]:
        return dict(self._known)

    def check(self) -> None:
        with self._lock:
            self._take(self._inbox.wait(0))
        if self._cancelled:
            raise Cancelled

    # between the body and the worker, not for kinds

    def ready(self, lock: str | None, device: str | None, deadline_s: float | None) -> None:
        """Say which device lock the job needs and wait until the worker holds it; Cancelled where it never
        will."""
        self._say("ready", {"lock": lock, "device": device, "deadline_s": deadline_s})
        self._await("go")

    def end(self, error: str | None = None, cancelled: bool = False, poisoned: bool = False) -> None:
        """The last word: how the job ended."""
        self._say("end", {"error": error, "cancelled": cancelled, "poisoned": poisoned})

    def _say(self, do: str, data: dict) -> None:
        with self._lock:
            send(self._sock, {"do": do, "data": data})

    def _await(self, word: str) -> None:
        while True:
            if word in self._take(self._inbox.wait(None)):
                return
            if self._inbox.closed:
                raise BrokenPipeError("the worker is gone")
            if word == "go" and self._cancelled:
                raise Cancelled

    def _take(self, messages: list[dict]) -> list[str]:
        said = [m["do"] for m in messages]
        self._cancelled = self._cancelled or "cancel" in said
        return said
