"""Starting a worker: through the warm parent where that works, from a cold interpreter where it does not."""

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
import subprocess
import sys
from pathlib import Path

from fusescope.core import paths

_WARM = Path(__file__).with_name("warm.py")
_ACK_S = float(
    os.environ.get("FUSESCOPE_WARM_ACK_S", 10)
)  # a parent that is ready answers within milliseconds
_READ_ON_LOAD = (
    "OMP_",
    "MKL_",
    "KMP_",
    "GOMP_",
    "LD_",
    "PYTHON",
    "TORCH_",
    "MALLOC_",
    "GLIBC_",
    "FUSESCOPE_WARM",
)


def launch(run: Path, lock: int) -> None:
    """Start the worker of a run folder and hand it the folder's lock (an open descriptor; the caller still
    closes its own)."""
    run = run.resolve()
    for _attempt in range(2):
        with _Door() as door:
            sock, ready = door.connect()
        if sock is None:
            break
        with sock:
            if _ask(sock, run, lock, wait=ready):
                return
        door.destroy()  # it is stopped, or was about to end
    start_cold(run, lock)


def warm_up() -> None:
    """Start the warm parent if there is none, and return at once; for the app's start, so that the first job
    begins quickly."""
    with _Door() as door:
        sock, _ready = door.connect()
    if sock is not None:
        sock.close()


def start_cold(run: Path, lock: int, note: str = "started from a cold interpreter") -> None:
    """A worker of its own interpreter, in a session of its own."""
    command = [
        sys.executable,
        "-m",
        "fusescope.jobs.worker",
        str(run),
        "--lock-fd",
        str(lock),
        "--note",
        note,
    ]
    env = os.environ | {"PYTHONPATH": paths.python_path()}
    with open(run / "log.txt", "ab") as log:
        subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(lock,),
            start_new_session=True,
        )


def _ask(sock: socket.socket, run: Path, lock: int, wait: bool) -> bool:
    """Hand the job over; True once it was taken. Where the parent is still importing, its queue is trusted to
    be served."""
    request = {"root": str(paths.IMPORT_ROOT), "run": str(run), "cwd": os.getcwd(), "env": dict(os.environ)}
    try:
        sock.settimeout(_ACK_S)
        text = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(sock, [text], [lock])
        sock.sendall(text[sent:])
        return not wait or b"pid" in sock.recv(1 << 12)
    except OSError:
        return False


class _Door:
    """The socket, state file and log of the warm parent that fits this interpreter, torch and checkout, under
    a lock."""

    def __init__(self):
        home = paths.user_runtime()
        self.identity = [str(_WARM), sys.executable, *_torch_files()]
        key = [paths.IMPORT_ROOT, sys.executable, sys.version, _torch_version(), _WARM.read_bytes()]
        key += sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith(_READ_ON_LOAD))
        name = f"warm-{hashlib.sha256(repr(key).encode()).hexdigest()[:12]}"
        self.home, self.socket_name = home, f"{name}.sock"
        self.state, self.log, self.lock = home / f"{name}.json", home / f"{name}.log", home / f"{name}.lock"

    def __enter__(self) -> _Door:
        self._fd = os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_) -> None:
        os.close(self._fd)

    def connect(self) -> tuple[socket.socket | None, bool]:
        """A connection to the parent, which is started if there is none, and whether it is ready; None: it
        cannot be had."""
        sock = self._call()
        if sock is None:
            if self._said().get("state") == "preloading":
                return None, False  # the last one died while it imported torch; so would the next
            self._start()
            sock = self._call()
        return sock, self._said().get("state") == "ready"

    def destroy(self) -> None:
        """End a parent that does not answer; its workers live on."""
        with self:
            pid = self._said().get("pid")
            with contextlib.suppress(OSError, TypeError):
                if str(_WARM).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
            self.state.unlink(missing_ok=True)
            (self.home / self.socket_name).unlink(missing_ok=True)

    def _call(self) -> socket.socket | None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _short(self.home) as home:
                sock.connect(f"{home}/{self.socket_name}")
        except OSError:  # no socket, or one whose owner died
            sock.close()
            return None
        return sock

    def _start(self) -> None:
        """The parent gets a socket that already listens, so nobody waits for it to come up."""
        with contextlib.suppress(FileNotFoundError):
            (self.home / self.socket_name).unlink()
        self.state.unlink(missing_ok=True)
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
                *self.identity,
            ]
            with open(self.log, "wb") as log:
                out = dict(stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                subprocess.run(
                    command, **out, pass_fds=(listener.fileno(),), cwd="/", start_new_session=True, check=True
                )

    def _said(self) -> dict:
        try:
            return json.loads(self.state.read_text())
        except (OSError, ValueError):
            return {}


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


def _torch_files() -> list[str]:
    """Files whose change means another torch, found without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return []
    return [spec.origin, str(Path(spec.origin).with_name("version.py"))]
