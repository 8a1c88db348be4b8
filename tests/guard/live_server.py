"""A real server as ``streamlit run`` starts it, and requests written byte by byte."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Live:
    """A server with folders of its own; ``token`` is the one that it printed."""

    def __init__(
        self,
        home: Path,
        *arguments: str,
        script: str = "app.py",
        port: int = 0,
        wait: bool = True,
        **env: str,
    ):
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", port))
            self.port = free.getsockname()[1]
        self.home, self.log = home, home / "server.log"
        own = {name: str(home / name.lower()) for name in ("PROFILES", "RUNTIME", "STATE")}
        (home / "profiles").mkdir(exist_ok=True)
        clean = {k: v for k, v in os.environ.items() if k not in ("FUSESCOPE_TOKEN", "FUSESCOPE_NO_TOKEN")}
        command = [sys.executable, "-m", "streamlit", "run", script, "--server.port", str(self.port)]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*command, *arguments],
                cwd=ROOT,
                env=clean | {f"FUSESCOPE_{k}": v for k, v in own.items()} | env,
                stdout=log,
                stderr=log,
            )
        if wait:
            self.wait()

    def wait(self) -> Live:
        end = time.monotonic() + 60
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.ask("GET", "/")
                return self
            time.sleep(0.1)
        raise RuntimeError(f"the server did not answer: {self.log.read_text()[-2000:]}")

    @property
    def token(self) -> str:
        found = re.search(r"\?token=(\S+)", self.log.read_text())
        return found[1] if found else ""

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def raw(self, data: bytes) -> bytes:
        """All that comes back until the server closes."""
        with self.connect() as connection:
            connection.sendall(data)
            parts = []
            with contextlib.suppress(TimeoutError, ConnectionResetError):
                while part := connection.recv(65536):
                    parts.append(part)
        return b"".join(parts)

    def ask(self, method: str, path: str, **headers: str | None) -> tuple[int, dict[str, str], str]:
        """(status, headers, body); ``host=None`` leaves the header out."""
        given = {"host": f"127.0.0.1:{self.port}", "connection": "close"}
        given |= {k.replace("_", "-"): v for k, v in headers.items()}
        lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in given.items() if v is not None)]
        answer = self.raw(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        if not answer:
            raise ConnectionError("closed without an answer")
        head, _, body = answer.decode("utf-8", "replace").partition("\r\n\r\n")
        first, *rest = head.split("\r\n")
        pairs = (line.partition(":")[::2] for line in rest)
        return int(first.split()[1]), {k.strip().lower(): v.strip() for k, v in pairs}, body

    def websocket(self, path: str = "/_stcore/stream", **headers: str | None) -> int:
        """The status of a WebSocket's handshake: 101 is in."""
        key = {"upgrade": "websocket", "connection": "Upgrade", "sec_websocket_version": "13"}
        key |= {"sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==", "sec_websocket_protocol": "streamlit"}
        given = {"host": f"127.0.0.1:{self.port}"} | key | headers
        lines = [f"GET {path} HTTP/1.1"]
        lines += [f"{k.replace('_', '-')}: {v}" for k, v in given.items() if v is not None]
        with self.connect() as connection:
            connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
            return int(connection.recv(65536).split()[1])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for state in (self.home / "runtime").glob("user-*/warm-*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                os.kill(json.loads(state.read_text())["pid"], signal.SIGTERM)
