"""One rank's trace read by a process of its own.

    python -m fusescope.profiling.ranks.one_rank FILE FOLDER KEEP      what a process runs

FOLDER becomes laid out as a run's, so that everything that reads a profile reads it; the process's standard
output, JSON lines, is for ``Process``.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from fusescope.core import paths

_TOLD = ("distributedInfo", "host_name")
_MOST = 1 << 16  # characters of what a trace says of its rank


class Process:
    """Reads a trace into folder/artifacts; it ends with the context, or when this process does."""

    def __init__(self, file: Path, folder: Path, keep: bool):
        self.file, self.share, self.text, self.about, self.error = file, 0.0, "", None, None
        self._rest = b""
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "fusescope.profiling.ranks.one_rank",
                *map(str, (file, folder, int(keep))),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": paths.python_path()},
        )
        os.set_blocking(self.process.stdout.fileno(), False)

    def close(self) -> None:
        self.process.kill()
        self.process.stdout.close()
        self.process.wait()

    def read(self) -> bool:
        """Take what it has said; whether it goes on. ``about``: what the trace says apart from its
        events, once it is read; ``error``: one sentence on why it could not be."""
        text = self.process.stdout.read()
        if text is None:
            return True
        self._rest += text
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            said = json.loads(line)
            self.share, self.text = said.get("share", self.share), said.get("text", self.text)
            self.about, self.error = said.get("about", self.about), said.get("error", self.error)
        if text:
            return True
        if self.about is None and self.error is None:
            code = self.process.wait()
            self.error = f"{self.file.name}: reading it ended with {_ended(code)}"
        return False


def _ended(code: int) -> str:
    return f"signal {-code} (not enough memory?)" if code < 0 else f"exit code {code}"


def _say(out, **what) -> None:
    out.write(json.dumps(what).encode() + b"\n")
    out.flush()


def read(file: Path, folder: Path, keep: bool, progress: Callable[[float, str], None]) -> dict:
    """Read a trace into folder/artifacts, in this process; gives what it says apart from its events.
    ValueError: one sentence on why it is no trace."""
    from fusescope.profiling.chrome import importer

    home, metadata = folder / "artifacts", {}
    home.mkdir(parents=True, exist_ok=True)
    try:
        importer.load(file, lambda name: home / name, progress, portions=1, metadata=metadata)
        if keep:
            _keep(file, home / "trace.json.gz", progress)
    except OSError as error:
        raise ValueError(f"{file.name} cannot be imported ({error.strerror})") from None
    about = {k: metadata[k] for k in _TOLD if k in metadata}
    return about if len(json.dumps(about)) <= _MOST else {}


def _read(file: Path, folder: Path, keep: bool) -> int:
    parent, out = os.getppid(), os.fdopen(os.dup(1), "wb")
    last = [-1]

    def progress(share: float, text: str) -> None:
        if os.getppid() != parent:
            raise SystemExit(1)
        if int(100 * share) > last[0]:
            last[0] = int(100 * share)
            _say(out, share=share, text=text)

    try:
        _say(out, about=read(file, folder, keep, progress))
    except ValueError as error:
        _say(out, error=str(error))
        return 1
    return 0


def _keep(file: Path, target: Path, progress: Callable[[float, str], None]) -> None:
    with open(file, "rb") as source:
        if source.read(2) == b"\x1f\x8b":
            shutil.copyfile(file, target)
            return
        source.seek(0)
        with gzip.open(target, "wb", compresslevel=1) as packed:
            while block := source.read(1 << 22):
                progress(0.99, f"keeping {file.name}")
                packed.write(block)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(_read(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "1"))
