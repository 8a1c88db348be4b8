"""The one writer of a run folder: what the worker process uses to book what a job says.

It holds the flock on the folder from birth to close. Before every write it makes sure that the folder is
still the one it locked and that run.json is still the one it wrote; a writer that finds otherwise writes
nothing and raises RunError.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fusescope.core.errors import Cancelled, RunError
from fusescope.core.records import Record
from fusescope.core.schema import lines
from fusescope.core.schema.lines import Lines
from fusescope.store import files
from fusescope.store.bounded import plain
from fusescope.store.live import signs

_PROGRESS_EVERY_S = 0.25
_SYNC_EVERY_S = 1.0
_RESERVE = 64 * 1024  # bytes kept back, so that a run on a full disk can still be marked failed


class Writer:
    """Implements ``core.reporter.Reporter``; beyond it ``state`` and ``queued`` (run.json) and ``close``.

    lock: a descriptor that already holds the folder's flock, else it is acquired here (RunError where a
    worker has it).
    """

    def __init__(self, path: Path, lock: int | None = None):
        self.path = Path(path)
        if not (self.path / "run.json").is_file():
            raise RunError(f"{self.path} is not a run folder: it has no run.json")
        self.lock = files.take_lock(self.path, wait_s=1.0) if lock is None else lock
        if self.lock is None:
            raise RunError(f"{self.path.name} is held by another worker; it is running already")
        self._fds: dict[str, int] = {}
        self._pairs: dict[tuple[str, str], str] = {}
        self._progress_at = self._synced_at = self._beat_at = 0.0
        self._progress_waits = self._unsynced = False
        try:
            self._open()
        except BaseException:
            self.close()  # or the folder would look alive for as long as this process lives
            raise

    def _open(self) -> None:
        self._data = files.read_json(self.path / "run.json")
        self._spec_text = _encoded(self._data.get("spec"))
        self._mark = self._stamp()
        with files.clear_errors(self.path):
            for name in ("results.jsonl", "samples.jsonl", "log.txt"):
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
                self._fds[name] = plain.descriptor(self.path / name, flags, 0o644)
            for name in ("results.jsonl", "samples.jsonl"):
                files.mend(self._fds[name])
            with plain.made(self.path / ".reserve") as reserve:
                files.append(reserve, b"\1" * _RESERVE)
        for data in files.lines(self.path / "results.jsonl"):
            try:
                record = Record.from_json(data)
            except (TypeError, ValueError) as e:
                raise RunError(
                    f"{self.path / 'results.jsonl'} holds a line that is not a record ({e})"
                ) from None
            self._pairs[record.case_key, record.impl] = record.status

    # what a job may say

    def record(self, record: Record) -> None:
        """Append a record; when this returns, it is in the file."""
        self._append("results.jsonl", lines.of_record(record))
        self._pairs[record.case_key, record.impl] = record.status

    def samples(
        self, case_key: str, impl: str, mode: str, milliseconds: list[float], state: list[dict] | None = None
    ) -> None:
        self._append("samples.jsonl", lines.of_sample(case_key, impl, mode, milliseconds, state))

    def book(self, found: Sequence[Lines]) -> None:
        """Append several records with their samples; when this returns, they are in the files."""
        self._append("samples.jsonl", *(line for one in found for line in one.samples))
        self._append("results.jsonl", *(one.record for one in found))
        self._pairs |= {(one.case_key, one.impl): one.status for one in found}

    def doing(self, case_key: str, impl: str, deadline_s: float) -> None:
        """Nothing to write: the worker books a crash or a hang itself."""

    def progress(self, done: int, total: int, message: str, eta_s: float | None = None) -> None:
        """Seen by readers at once, or within a quarter of a second where many follow each other."""
        self._data["progress"] = {
            "done": done,
            "total": total,
            "message": message,
            "eta_s": eta_s if eta_s is not None and 0 <= eta_s < math.inf else None,
            "updated": time.time(),
        }
        self._progress_waits = True
        self.flush_progress()

    def flush_progress(self, now: bool = False) -> None:
        """Write progress that is waiting, if it is due."""
        if self._progress_waits and (now or time.monotonic() - self._progress_at >= _PROGRESS_EVERY_S):
            self._write_run()

    def log(self, text: str) -> None:
        with files.clear_errors(self.path):
            os.write(self._fds["log.txt"], text.rstrip("\n").encode(errors="replace") + b"\n")

    def environment(self, **facts: Any) -> None:
        self._data["environment"] = {**self._data.get("environment", {}), **facts}
        self._write_run()

    def artifact(self, name: str) -> Path:
        return artifact_path(self.path, name)

    def skip(self) -> set[tuple[str, str]]:
        return set(self._pairs)

    def statuses(self) -> dict[tuple[str, str], str]:
        return dict(self._pairs)

    def check(self) -> None:
        if self.cancel_requested():
            raise Cancelled

    # what the worker says

    def cancel_requested(self) -> bool:
        return (self.path / "cancel").exists()

    def sign(self) -> None:
        """Note this process in run.json as the worker; written with the next change of state."""
        self._data["worker"] = {"pid": os.getpid(), "host": os.uname().nodename}

    def launched(self) -> None:
        """Queue the run and note that a worker is being started: a reader that finds none then knows that it
        never came."""
        self._data["launched"] = time.time()
        self._data.pop("worker", None)
        self.state("queued")
        self.progress(0, 0, "waiting for its process to start")
        self.flush_progress(now=True)

    def state(self, status: str, reason: str | None = None, times: Mapping[str, float] | None = None) -> None:
        """Change the run's state; started and finished are set on the way unless ``times`` (created, started,
        finished; Unix seconds) says when it was measured. Makes room on a full disk for this one write."""
        self._data |= {"status": status, "reason": reason}
        if status == "running":
            self._data |= {"started": self._data.get("started") or time.time(), "finished": None}
        if status in ("queued", "running"):
            self._data.pop("contents", None)
        else:
            self._data["finished"] = time.time()
            self._data.pop("queue", None)
            self._data.pop("worker", None)
            self._data["contents"] = self._contents()
        self._data |= times or {}
        try:
            self._write_run()
        except RunError as e:
            if not (isinstance(e.__cause__, OSError) and files.is_full(e.__cause__)):
                raise
            self._free()
            self._write_run()
        live = signs.marker(self.path)
        if status in ("queued", "running"):
            with files.clear_errors(live):
                plain.make_folder(live.parent)
                plain.touch(live)
        else:
            with contextlib.suppress(OSError):
                live.unlink()

    def queued(self, device: str, lock: str, place: int, message: str) -> None:
        """The run's place in the queue of a device ("cuda:0") that is known to all by its lock; place 0
        = it has it."""
        self._data["queue"] = {"device": device, "lock": lock, "place": place}
        self.progress(0, 0, message)
        self.flush_progress(now=True)

    def beat(self) -> None:
        """Show that this process is at work, at most once a second: readers see by the marker's time when it
        last did."""
        if time.monotonic() - self._beat_at >= 1.0:
            self._beat_at = time.monotonic()
            with contextlib.suppress(OSError):
                os.utime(signs.marker(self.path))
            with files.clear_errors(self.path):
                self._sync()

    def close(self) -> None:
        """Give the folder up; a run that is still live reads as interrupted from here on."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds = {}
        self._free()
        os.close(self.lock)

    def _free(self) -> None:
        """Give the reserve back, where there is one."""
        with contextlib.suppress(OSError):
            (self.path / ".reserve").unlink()

    def descriptors(self) -> list[int]:
        """Every descriptor held, so that a forked child can close its copies (the lock must end with this
        process)."""
        return [self.lock, *self._fds.values()]

    def log_descriptor(self) -> int:
        return self._fds["log.txt"]

    def _contents(self) -> dict[str, dict]:
        """What results and samples hold, on the disk before run.json says so: readers see by it what was cut
        off later."""
        found = {}
        for name in ("results.jsonl", "samples.jsonl"):
            with contextlib.suppress(OSError):  # of a full or failing disk; what is there is counted
                os.fsync(self._fds[name])
            found[name] = vars(files.contents(self.path / name))
        return found

    def _append(self, name: str, *new: str) -> None:
        self._still_ours()
        with files.clear_errors(self.path):
            files.append(self._fds[name], "".join(f"{line}\n" for line in new).encode())
            self._unsynced |= name == "results.jsonl"
            self._sync()

    def _sync(self) -> None:
        """Have results on the disk a second after they came: a power cut would lose what is not, a kill
        loses nothing that was written."""
        if self._unsynced and time.monotonic() - self._synced_at >= _SYNC_EVERY_S:
            os.fdatasync(self._fds["results.jsonl"])
            self._synced_at, self._unsynced = time.monotonic(), False

    def _write_run(self) -> None:
        self._still_ours()
        with files.clear_errors(self.path):
            files.replace(self.path / "run.json", self._text())
        self._mark = self._stamp()
        self._progress_at, self._progress_waits = time.monotonic(), False

    def _text(self) -> str:
        """run.json. The specification, which never changes and may have ten thousand cases, is encoded once:
        progress is written twice a second."""
        texts = [(key, self._spec_text if key == "spec" else _encoded(v)) for key, v in self._data.items()]
        return "{\n" + ",\n".join(f" {json.dumps(key)}: {text}" for key, text in texts) + "\n}\n"

    def _still_ours(self) -> None:
        try:
            ours = os.path.samestat(os.fstat(self.lock), os.stat(self.path)) and self._stamp() == self._mark
        except OSError:
            ours = False
        if not ours:
            raise RunError(
                f"{self.path} was moved, deleted or taken over while this worker was stopped; "
                "it writes no more"
            )

    def _stamp(self) -> tuple[int, int]:
        s = os.stat(self.path / "run.json")
        return s.st_ino, s.st_mtime_ns


def _encoded(value: Any) -> str:
    """JSON with the indentation of a value one level deep in an indented file."""
    return json.dumps(value, indent=1).replace("\n", "\n ")


def artifact_path(run: Path, name: str) -> Path:
    """artifacts/<name> of a run, its parent folders made; ValueError for a name that leads out of it,
    RunError where a pipe, a device or the like lies there."""
    home = Path(os.path.realpath(run)) / "artifacts"
    path = Path(os.path.realpath(home / name))  # Path.resolve raises RuntimeError for a link to itself
    if path == home or home not in path.parents:
        raise ValueError(f"an artifact must be under artifacts/, not {name!r}")
    if path.exists() and not path.is_dir() and not plain.is_file(path):
        raise RunError(f"{path} is no plain file; delete it to go on")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
