"""What may lie in the place of a run's file without being one."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from fusescope.store import folder, library, profile, tables, transfer
from fusescope.store.index import disk

_TRIES = 10

PLACES = (
    *("run.json", "notes.json", "results.jsonl", "samples.jsonl", "results.jsonl.gz", "samples.jsonl.gz"),
    *("log.txt", "cancel", ".reserve", "artifacts", "artifacts/summary.json", "artifacts/kernels.parquet"),
    *("artifacts/trace.json.gz", "artifacts/telemetry.json", "artifacts/report.json.gz", "artifacts/ranks"),
)
"""Within a run's folder."""
_INDEX = f".index/v{disk.VERSION}"
AROUND = (
    *("recorded", ".live", ".index"),
    *(f"{_INDEX}/lock", f"{_INDEX}/runs.parquet", f"{_INDEX}/records.parquet"),
)
"""Next to the runs."""
NAMES = (
    b"\xff\xfe",
    b"artifacts/\xff.parquet",
    b"artifacts/\xc3\x28.json",
    b"artifacts/\xed\xa0\x80",
    b".\xff",
)
"""Files of a run whose names are no UTF-8."""
_SECRET = b'{"schema": 1, "op": "secret of elsewhere", "kind": "bench"}\n'


def outside(at: Path) -> Path:
    """A folder that no run may lead to: its files stay as they are, and nobody reads them."""
    away = at / "outside"
    (away / "folder").mkdir(parents=True, exist_ok=True)
    for name in ("file", "folder/summary.json", "folder/run.json", "folder/runs.parquet"):
        (away / name).write_bytes(_SECRET)
    return away


def untouched(away: Path) -> bool:
    """Whether nothing was added to what ``outside`` made, taken from it or changed."""
    whole = {"file", "folder", "folder/summary.json", "folder/run.json", "folder/runs.parquet"}
    there = {str(p.relative_to(away)): p for p in away.rglob("*")}
    return there.keys() == whole and all(p.is_dir() or p.read_bytes() == _SECRET for p in there.values())


def _socket(path: Path) -> None:
    before = os.getcwd()
    os.chdir(path.parent)  # a socket's address is at most 108 bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def _device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        path.symlink_to("/dev/zero")


def kinds(away: Path) -> dict[str, Callable[[Path], object]]:
    """What to put in a place that is free, by name."""
    return {
        "a pipe": os.mkfifo,
        "a device": _device,
        "a socket": _socket,
        "a link to a device": lambda p: p.symlink_to("/dev/zero"),
        "a link to a file": lambda p: p.symlink_to(away / "file"),
        "a link to a folder": lambda p: p.symlink_to(away / "folder"),
        "a dangling link": lambda p: p.symlink_to(away / "new"),
        "a link to itself": lambda p: p.symlink_to(p),
        "a folder": lambda p: p.mkdir(),
    }


def remove(path: Path) -> None:
    """Have nothing there, whatever it was. A server that runs may renew its index in a folder that is being
    removed: that is removed again."""
    left = _TRIES
    while path.is_dir() and not path.is_symlink():
        left -= 1
        try:
            shutil.rmtree(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT) or not left:
                raise
    if os.path.lexists(path):
        path.unlink()


def put(path: Path, plant: Callable[[Path], object]) -> None:
    """Plant it there, whatever was there before; folders above it are made."""
    remove(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    plant(path)


def named(run: Path, name: bytes) -> None:
    """A file whose name is these bytes."""
    path = os.path.join(os.fsencode(run), name)
    if os.path.islink(os.path.dirname(path)):
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(_SECRET)


def readers(path: Path, bundle: Path) -> dict[str, Callable[[], object]]:
    """Everything that reads a run or changes it for a person; its export goes to ``bundle``."""
    return {
        "run": lambda: folder.read(path),
        "records": lambda: folder.records(path),
        "samples": lambda: folder.samples(path),
        "unchanged": lambda: folder.is_unchanged(path),
        "rows": lambda: library.records(run=path.name),
        "summary": lambda: profile.summary(path),
        "facts": lambda: profile.facts(path, "telemetry"),
        "table": lambda: profile.table(path, "kernels"),
        "csv": lambda: list(profile.csv(path, "kernels")),
        "rank": lambda: profile.summary(profile.rank_folder(path, 0)),
        "report": lambda: tables.read(path, "report"),
        "export": lambda: transfer.export(path.name, bundle),
        "notes": lambda: folder.write_notes(path, title="new"),
        "cancel": lambda: folder.request_cancel(path),
    }
