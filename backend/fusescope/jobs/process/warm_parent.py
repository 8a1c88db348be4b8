"""The one warm parent of this user and interpreter, from outside: finding, starting, using, replacing it.

Its environment is that of the process that started it. A worker gets its submitter's environment with the
request, so only variables that libraries read while they are loaded count: where those differ from the
parent's, the parent is replaced; it serves its pending requests and ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from fusescope.core import paths
from fusescope.core.machine import runtime

_WARM = Path(__file__).with_name("warm.py")
_READ_ON_LOAD = (
    ("GOMP_", "KMP_", "LD_", "MALLOC_", "MKL_", "OMP_", "OPENBLAS_", "PYTORCH_", "TORCH_")
    + ("GLIBC_TUNABLES", "NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES")
    + ("PYTHONDEVMODE", "PYTHONHASHSEED", "PYTHONHOME", "PYTHONMALLOC", "PYTHONNOUSERSITE")
    + ("PYTHONOPTIMIZE", "PYTHONPATH", "PYTHONUSERBASE", "PYTHONWARNINGS")
)
_READ_LATER = ("TORCH_CUDA_ARCH_LIST", "TORCH_EXTENSIONS_DIR", "TORCH_HOME", "TORCH_NVCC_FLAGS")
_IMPORT_S = 120.0  # the longest that torch may take to be imported
_RETRY_S = 600.0  # a torch that killed its importer is tried again after so long
_CREDENTIALS = struct.Struct("3i")  # process, user, group of the other end of a socket


class NoParent(Exception):
    """There is no warm parent; the text says why."""


def ask(request: dict, descriptors: list[int]) -> Request | None:
    """Hand a job over; the Request where the parent is still importing, which nobody waits for here.

    NoParent where it was not taken; OSError, ValueError where none can be started.
    """
    wait_s = runtime.seconds("FUSESCOPE_WARM_ACK_S", 10)  # one that is ready answers within milliseconds
    for _attempt in range(2):
        with Door() as door:
            sock, ready = door.connect()
        asked = Request(sock, request, descriptors)
        if not ready and not asked.broken:
            return asked
        if asked.taken(wait_s):
            return None
        door.destroy()  # it is stopped, or was about to end
    raise NoParent("the warm parent does not answer")


def warm_up() -> None:
    """Start the warm parent if there is none, and return at once; for the app's start, so that the first job
    begins quickly. Without one, jobs start from a cold interpreter and say why."""
    with contextlib.suppress(Exception), Door() as door:
        door.connect()[0].close()


class Request:
    """One job that a warm parent was asked to start, and the right to start it, which only one process gets:
    a byte in a pipe. The worker takes it first of all, or whoever asked takes it back; so a parent that dies
    at any moment neither loses a job nor lets it start twice.
    """

    def __init__(self, sock: socket.socket, request: dict, descriptors: list[int]):
        self._sock, self.broken = sock, False
        self._right, write = os.pipe()
        os.write(write, b"!")
        os.close(write)
        try:
            sock.settimeout(10.0)
            text = json.dumps(request).encode() + b"\n"
            sent = socket.send_fds(sock, [text], [self._right, *descriptors])
            sock.sendall(text[sent:])
        except OSError:
            self.broken = True

    def taken(self, wait_s: float = _IMPORT_S) -> bool:
        """Wait for the parent's word (seconds); False where it gave none and no worker has begun, nor ever
        will. Only once."""
        said = b""
        with self._sock, contextlib.suppress(OSError):
            self._sock.settimeout(wait_s)
            said = b"" if self.broken else self._sock.recv(1 << 12)
        with open(self._right, "rb", buffering=0) as right:
            return b"pid" in said or not right.read(1)


class Door:
    """The socket, state file and log of the warm parent of this user, interpreter and torch, under a lock."""

    def __init__(self):
        home = runtime.private()
        key = [sys.executable, sys.version, _torch_version(), *torch_files(), _WARM.read_bytes()]
        name = f"warm-{hashlib.sha256(repr(key).encode()).hexdigest()[:12]}"
        self.settings = hashlib.sha256(repr(read_on_load()).encode()).hexdigest()[:12]
        self.home, self.socket_name = home, f"{name}.sock"
        self.state, self.log, self.lock = home / f"{name}.json", home / f"{name}.log", home / f"{name}.lock"

    def __enter__(self) -> Door:
        self._fd = os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_) -> None:
        os.close(self._fd)

    def connect(self) -> tuple[socket.socket, bool]:
        """A connection to the parent, which is started if there is none with these settings, and whether it
        is ready."""
        said, sock = self._said(), self._call()
        if sock is not None and said.get("settings") != self.settings:
            sock.close()
            sock = None
            self._retire(said)
            said = {}
        if sock is None:
            if said.get("state") == "preloading" and said.get("settings") == self.settings and self._young():
                raise NoParent(f"the last warm parent died while it imported torch; see {self.log}")
            self._start()
            sock = self._call()
        if sock is None:
            raise NoParent(f"the warm parent ended at once; see {self.log}")
        return sock, self._said().get("state") == "ready"

    def destroy(self) -> None:
        """End a parent that does not answer; its workers live on."""
        with self:
            _signal(self._said(), signal.SIGKILL)
            self._forget()

    def _retire(self, said: dict) -> None:
        """Let a parent serve pending requests, and end."""
        _signal(said, signal.SIGTERM)
        self._forget()

    def _forget(self) -> None:
        self.state.unlink(missing_ok=True)
        (self.home / self.socket_name).unlink(missing_ok=True)

    def _call(self) -> socket.socket | None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(10.0)
            with _short(self.home) as home:
                sock.connect(f"{home}/{self.socket_name}")
        except OSError:  # no socket, or one whose owner died
            sock.close()
            return None
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(credentials)[1] != os.getuid():
            sock.close()
            raise NoParent("the warm parent's socket belongs to another user")
        return sock

    def _start(self) -> None:
        """The parent gets a socket that already listens, so no caller waits for it to start."""
        times = [
            runtime.seconds("FUSESCOPE_WARM_IDLE_S", 3600),
            runtime.seconds("FUSESCOPE_WARM_CHECK_S", 20),
        ]
        self._forget()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            with _short(self.home) as home:
                listener.bind(f"{home}/{self.socket_name}")
            listener.listen(64)
            command = [
                sys.executable,
                "-P",
                str(_WARM),
                str(listener.fileno()),
                str(self.state),
                self.settings,
            ]
            command += [*map(str, times), str(_WARM), sys.executable, *torch_files()]
            with open(self.log, "wb") as log:
                out = dict(stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                subprocess.run(
                    command, **out, pass_fds=(listener.fileno(),), cwd="/", start_new_session=True, check=True
                )

    def _young(self) -> bool:
        return time.time() - self.state.stat().st_mtime < _RETRY_S

    def _said(self) -> dict:
        try:
            said = json.loads(self.state.read_text())
        except (OSError, ValueError, RecursionError):
            return {}
        return said if isinstance(said, dict) else {}


def read_on_load() -> list[str]:
    """The variables that libraries read while they are loaded, with their values. The package's own folder on
    PYTHONPATH is none: a warm parent imports nothing of ours."""
    found = {
        k: v for k, v in os.environ.items() if v and k.startswith(_READ_ON_LOAD) and k not in _READ_LATER
    }
    if "PYTHONPATH" in found:
        kept = [p for p in found["PYTHONPATH"].split(os.pathsep) if p and p != str(paths.IMPORT_ROOT)]
        found["PYTHONPATH"] = os.pathsep.join(kept)
    return sorted(f"{k}={v}" for k, v in found.items() if v)


def torch_files() -> list[str]:
    """Files whose change means another torch, found without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return []
    return [spec.origin, str(Path(spec.origin).with_name("version.py"))]


def _signal(said: dict, number: int) -> None:
    """Send a signal to the process that a state file names, if it is a warm parent of ours."""
    pid = said.get("pid")
    if not isinstance(pid, int) or pid <= 1:
        return
    with contextlib.suppress(OSError):
        process = Path(f"/proc/{pid}")
        if process.stat().st_uid == os.getuid() and b"/warm.py\0" in (process / "cmdline").read_bytes():
            os.kill(pid, number)


@contextlib.contextmanager
def _short(folder: Path):
    """A name of the folder that fits into a socket's address (108 bytes)."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


def _torch_version() -> str:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "none"
