"""Starting the ranks of a parallel job with torchrun's elastic launcher, and hearing what rank 0 says.

The ranks meet through a file and talk over the loopback interface: no port is chosen, so none can be taken,
and nobody else can join. They die with this process. A rank that dies ends the others; what was being
measured gets a record that says so, and new ranks go on with the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fusescope.core import paths
from fusescope.core.errors import Cancelled, RunError
from fusescope.core.machine import environment
from fusescope.core.records import Record
from fusescope.core.reporter import Reporter
from fusescope.jobs.process import scratch
from fusescope.jobs.process.channel import Inbox, send
from fusescope.jobs.process.gpu_lock import Ticket, queued

_POLL_S = 0.2
_DIED = "was killed by signal"
_FATAL = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
_MOST_STARTS = 20
_GRACE_S = 30.0  # that the worker waits longer than we do before it takes this process for hung


def run(spec: Mapping[str, Any], ranks: int, reporter: Reporter) -> None:
    """Measure ``spec`` on so many ranks of this machine. Raises Cancelled where a stop was requested,
    RunError with the reason where the ranks could not work."""
    with _devices(spec["device"], ranks, reporter):
        for _ in range(_MOST_STARTS):
            heard = _Words(reporter)
            if _once(spec, ranks, reporter, heard):
                return
    raise RunError(f"the ranks died {_MOST_STARTS} times")


@contextlib.contextmanager
def _devices(device: str, ranks: int, reporter: Reporter) -> Iterator[None]:
    """Hold the GPUs beyond the first, which the job holds, in the order of their numbers, so that two such
    jobs never wait for each other. RunError where torch has no NCCL."""
    if not device.startswith("cuda"):
        yield
        return
    import torch.distributed as dist

    if not dist.is_nccl_available():
        raise RunError("several GPUs need NCCL, which this torch was built without")
    first = int(device.partition(":")[2])
    with contextlib.ExitStack() as held:
        for number in range(first + 1, first + ranks):
            ticket = Ticket(environment.gpu_of(f"cuda:{number}")["uuid"], Path.cwd().name)
            held.callback(ticket.close)
            while ahead := ticket.advance():
                reporter.check()
                reporter.progress(0, 0, queued(f"cuda:{number}", ahead))
                time.sleep(_POLL_S)
        yield


def _once(spec: Mapping[str, Any], ranks: int, reporter: Reporter, heard: _Words) -> bool:
    """Start the ranks and wait for their end; whether all of it was measured."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    with scratch.folder(scratch.RANKS) as home:
        known = [[*pair, status] for pair, status in reporter.statuses().items()]
        run = reporter.artifact("traceback.txt").parent.parent
        (home / "spec.json").write_text(json.dumps({"spec": spec, "known": known, "run": str(run)}))
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(home / "words"))
            listening.listen(1)
            heard.begin(listening)
            try:
                with _surroundings(home):
                    elastic_launch(_config(ranks, home), sys.executable)(
                        "-m", "fusescope.jobs.parallel.rank", str(home)
                    )
            except ChildFailedError as e:
                heard.end()
                return heard.failed(_sentence(e), _first_error(home), _alone(home))
            finally:
                heard.end()
    return heard.ended(None)


def _config(ranks: int, home: Path) -> Any:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.launcher.api import LaunchConfig

    # torch 2.11 waits half a minute for ranks that do not end by SIGTERM; ours have no handler for it
    soon = {"shutdown_timeout": 2} if "shutdown_timeout" in LaunchConfig.__dataclass_fields__ else {}
    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        run_id="fusescope",
        rdzv_backend="c10d",
        rdzv_endpoint=str(home / "rendezvous"),
        rdzv_configs={"store_type": "file"},
        max_restarts=0,
        monitor_interval=0.1,
        local_addr="127.0.0.1",
        logs_specs=DefaultLogsSpecs(log_dir=str(home / "logs"), redirects=Std.NONE, tee=Std.NONE),
        **soon,
    )


class _surroundings:
    """The environment that ranks inherit: ours, over the loopback interface, no multicast over NVLink."""

    def __init__(self, home: Path):
        self._own = {
            "PYTHONPATH": paths.python_path(),
            "GLOO_SOCKET_IFNAME": "lo",
            "NCCL_SOCKET_IFNAME": "lo",
            "NCCL_NVLS_ENABLE": "0",
            "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "KINETO_LOG_LEVEL": "99",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        }

    def __enter__(self) -> None:
        self._before = {name: os.environ.get(name) for name in self._own}
        os.environ.update(self._own)

    def __exit__(self, *_: Any) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class _Words:
    """What rank 0 says, passed on to the worker by a thread, and Cancel passed on to rank 0."""

    def __init__(self, reporter: Reporter):
        self._reporter = reporter
        self._doing: tuple[str, str, float] | None = None
        self._until = float("inf")
        self._done: dict | None = None
        self._error: BaseException | None = None
        self._over = threading.Event()
        self.late: str | None = None

    def begin(self, listening: socket.socket) -> None:
        self._thread = threading.Thread(target=self._listen, args=(listening,), daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def ended(self, error: str | None) -> bool:
        """Of ranks that all ended by themselves; ``error``: what the first to fail said."""
        if self._error:
            raise self._error
        if self._done and self._done["cancelled"]:
            raise Cancelled
        if error or self._done is None or self._done["error"]:
            raise RunError(
                error or (self._done and self._done["error"]) or "rank 0 ended without a last word"
            )
        return True

    def failed(self, why: str, error: str | None, alone: tuple[str, str] | None = None) -> bool:
        """Book a rank that died, or that failed ``alone`` (status, reason), on what was being measured;
        False: the rest is to be gone on with."""
        if self._error:
            raise self._error
        status, why = alone or ("timeout" if self.late else "crashed", self.late or why)
        if self._doing is None or (error and not alone and not self.late and _DIED not in why):
            return self.ended(error or why)
        op, case, dtype, device = json.loads(self._doing[0])
        if (self._doing[0], self._doing[1]) in self._reporter.statuses():
            raise RunError(why)
        self._reporter.record(Record(op, self._doing[1], case, dtype, device, status, why))
        return False

    def _listen(self, listening: socket.socket) -> None:
        listening.settimeout(_POLL_S)
        while not self._over.is_set():
            try:
                sock, _ = listening.accept()
            except TimeoutError:
                continue
            with sock:
                sock.settimeout(None)
                try:
                    self._hear(sock)
                except BaseException as e:  # raised where the ranks are waited for
                    self._error = e
                    _kill_peer(sock)
            return

    def _hear(self, sock: socket.socket) -> None:
        inbox, told = Inbox(sock), False
        while not inbox.closed and self._done is None:
            over = self._over.is_set()
            messages = inbox.wait(0 if over else _POLL_S)
            for message in messages:
                getattr(self, f"_on_{message['do']}")(message["data"])
                if message["do"] == "record":
                    with contextlib.suppress(
                        BrokenPipeError, ConnectionResetError
                    ):  # its end is seen elsewhere
                        send(sock, {"do": "recorded"})
            if over and not messages:
                return
            if self._doing and time.monotonic() > self._until and self.late is None:
                self.late = f"took longer than its deadline of {self._doing[2]:g} s and was stopped"
                _kill_peer(sock)
            try:
                self._reporter.check()
            except Cancelled:
                if not told:
                    send(sock, {"do": "cancel"})
                told = True

    def _on_record(self, data: dict) -> None:
        self._reporter.record(Record.from_json(data))

    def _on_samples(self, data: dict) -> None:
        self._reporter.samples(**data)

    def _on_doing(self, data: dict) -> None:
        self._doing = data["case_key"], data["impl"], data["deadline_s"]
        self._until = time.monotonic() + data["deadline_s"]
        self._reporter.doing(data["case_key"], data["impl"], data["deadline_s"] + _GRACE_S)

    def _on_progress(self, data: dict) -> None:
        self._reporter.progress(**data)

    def _on_log(self, data: dict) -> None:
        self._reporter.log(data["text"])

    def _on_environment(self, data: dict) -> None:
        self._reporter.environment(**data)

    def _on_end(self, data: dict) -> None:
        self._done = data


def _kill_peer(sock: socket.socket) -> None:
    """End rank 0; the launcher then ends the others."""
    pid, *_ = struct.unpack(
        "3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _first_error(home: Path) -> str | None:
    """What the rank that failed first said; the others lost their partner."""
    files = sorted(home.glob("error-*"), key=lambda f: f.stat().st_mtime_ns)
    return files[0].read_text(errors="replace") if files else None


def _alone(home: Path) -> tuple[str, str] | None:
    """Status and reason of a rank that failed while the others waited for it."""
    files = sorted(home.glob("alone-*"))
    return tuple(json.loads(files[0].read_text())) if files else None


def _sentence(error: Any) -> str:
    """Which rank died first, and how. One that was killed or crashed comes before those that then lost their
    partner: they may end, and say so, before the launcher looks."""
    first, _ = error.get_first_failure()
    rank, failure = min(error.failures.items(), key=lambda f: (-f[1].exitcode not in _FATAL, f[0] != first))
    code = failure.exitcode
    return f"rank {rank} {_DIED} {-code}" if code < 0 else f"rank {rank} ended with exit code {code}"
