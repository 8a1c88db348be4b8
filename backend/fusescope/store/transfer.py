"""Runs as one file: export, import of what a stranger may have made, and deleting.

An imported file is hostile until shown otherwise: only plain files of known places come out of it, under
limits that are counted while unpacking and never believed from a header; nothing in it is executed or
un-pickled.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import secrets
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from fusescope.core import paths
from fusescope.core.errors import RunError
from fusescope.store import files, folder, library
from fusescope.store.bounded import plain

SUFFIX = ".fsrun.tar.gz"
MAX_BYTES = 8 << 30  # unpacked, all files
MAX_FILES = 5000
MAX_RATIO = 200  # unpacked over packed: JSON lines reach some 30, a bomb starts at 1000
MAX_JSON = 16 << 20  # run.json and notes.json
_TOP = {
    "run.json",
    "notes.json",
    "results.jsonl",
    "results.jsonl.gz",
    "samples.jsonl",
    "samples.jsonl.gz",
    "log.txt",
}
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,=+@() -]{0,199}")
_CHUNK = 1 << 20


def export(run_id: str, target: str | Path) -> Path:
    """One file with the whole run: a .zip if the target is named so, else <id>.fsrun.tar.gz (in target, if
    that is a folder).

    RunError: no such run, or the target cannot be written (it is made next to it and renamed, so half a file
    never has its name).
    """
    source = library.find(run_id)
    folder.read(source)  # an unreadable run is refused here, not at the import
    target = Path(target)
    if target.is_dir():
        target = target / f"{source.name}{SUFFIX}"
    members = [p for p in plain.files(source) if _is_ours(p.relative_to(source))]
    with files.clear_errors(target):
        fd, name = tempfile.mkstemp(prefix=".export-", dir=target.parent)
        try:
            with os.fdopen(fd, "wb") as out:
                (_write_zip if target.suffix == ".zip" else _write_tar)(out, members, source)
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(name, 0o666 & ~umask)
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    return target


def load(file: str | Path) -> str:
    """Import a file that ``export`` made and return the run's id: its own, or a fresh one where that is
    taken. The run is marked as imported for good: it may be anybody's.

    ValueError says what is wrong with the file; nothing of a refused file stays. RunError: newer version,
    disk full.
    """
    file, home = Path(file), paths.profiles()
    if not (file.is_file() and os.access(file, os.R_OK)):
        raise ValueError(f"there is no file {file} that may be read")
    home.mkdir(parents=True, exist_ok=True)
    hidden = home / f".import-{secrets.token_hex(6)}"
    try:
        with files.clear_errors(home):
            hidden.mkdir()
            (hidden / "artifacts").mkdir()
            _unpack(file, hidden)
            return _settle(hidden, home)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def delete(run_id: str) -> None:
    """Remove a run for good. ValueError for one that is queued or running; RunError for a recorded or unknown
    one."""
    path = library.find(run_id)
    if folder.is_recorded(path):
        raise RunError(f"{path.name} is a recorded run and read-only; it is part of the project")
    if path.is_symlink():  # the link goes, not what it leads to
        with files.clear_errors(path):
            path.unlink()
        return
    with files.clear_errors(path):
        lock = files.take_lock(path, wait_s=0.5)
    if lock is None:
        raise ValueError(f"{path.name} is held by its worker: cancel it first, then delete it")
    try:
        with files.clear_errors(path):
            # out of sight at once, whatever happens on the way
            gone = path.with_name(f".deleted-{path.name}-{secrets.token_hex(4)}")
            os.replace(path, gone)
            shutil.rmtree(gone)
            (path.parent / ".live" / path.name).unlink(missing_ok=True)
    finally:
        os.close(lock)


def _is_ours(name: PurePosixPath | Path) -> bool:
    return str(name) in _TOP or (name.parts[0] == "artifacts" and all(_NAME.fullmatch(p) for p in name.parts))


def _write_tar(out: BinaryIO, members: list[Path], source: Path) -> None:
    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return info

    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=6) as tar:
        for p in members:
            tar.add(p, f"{source.name}/{p.relative_to(source).as_posix()}", recursive=False, filter=plain)


def _write_zip(out: BinaryIO, members: list[Path], source: Path) -> None:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for p in members:
            z.write(p, f"{source.name}/{p.relative_to(source).as_posix()}")


def _unpack(file: Path, hidden: Path) -> None:
    packed, total, seen = file.stat().st_size, 0, set()
    budget = min(MAX_BYTES, max(packed * MAX_RATIO, 1 << 20))
    try:
        for name, stream in _members(file):
            inner = _inner(name)
            if inner in seen or len(seen) >= MAX_FILES:
                raise ValueError(
                    f"{file.name}: "
                    + (f"two files named {inner}" if inner in seen else f"more than {MAX_FILES} files")
                )
            seen.add(inner)
            target = hidden / inner
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(target, "xb") as out:
                while chunk := stream.read(_CHUNK):
                    total += len(chunk)
                    if total > budget:
                        raise ValueError(
                            f"{file.name} unpacks to more than {budget >> 20} MiB, "
                            f"{MAX_RATIO} times its size; refused"
                        )
                    out.write(chunk)
    except _LongHeader:
        raise ValueError(
            f"{file.name} is no intact .tar.gz or .zip of a run (an extended header of more than 64 KiB)"
        ) from None
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        EOFError,
        NotImplementedError,
        RuntimeError,
        zlib.error,
    ):
        raise ValueError(f"{file.name} is no intact .tar.gz or .zip of a run") from None
    except OSError as e:
        if e.errno is None or isinstance(
            e, FileExistsError | NotADirectoryError | IsADirectoryError
        ):  # gzip's own complaints
            raise ValueError(f"{file.name} is no intact .tar.gz or .zip of a run") from None
        raise


def _members(file: Path) -> Iterator[tuple[str, BinaryIO]]:
    """The plain files in an archive, in its order; ValueError for anything that is neither file nor
    folder."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as z:
            if len(z.infolist()) > 2 * MAX_FILES:
                raise ValueError(f"{file.name}: more than {MAX_FILES} files")
            for info in z.infolist():
                kind = (info.external_attr >> 16) & 0o170000
                if info.is_dir():
                    continue
                if kind not in (0, 0o100000):
                    raise ValueError(
                        f"{file.name}: {info.filename!r} is a link or a device; only plain files are imported"
                    )
                with z.open(info) as stream:
                    yield info.filename, stream
        return
    with gzip.open(file) as unpacked, tarfile.open(fileobj=unpacked, mode="r|", tarinfo=_Member) as tar:
        for number, info in enumerate(tar):
            if number > 2 * MAX_FILES:
                raise ValueError(f"{file.name}: more than {MAX_FILES} files")
            if info.isdir():
                continue
            if not info.isreg() or info.issparse():
                raise ValueError(
                    f"{file.name}: {info.name!r} is a link or a device; only plain files are imported"
                )
            yield info.name, tar.extractfile(info) or io.BytesIO()
        if (
            len(unpacked.read(_CHUNK)) == _CHUNK
        ):  # to the end, where gzip checks its sum; tar only pads to 10 KiB
            raise ValueError(f"{file.name} goes on after the end of its archive")


class _LongHeader(tarfile.ReadError):
    """An extended header of more than 64 KiB."""


class _Member(tarfile.TarInfo):
    """A tar header that refuses long names and extended headers of a size that only serves to exhaust
    memory."""

    def _proc_member(self, tar):
        if self.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) and self.size > 1 << 16:
            raise _LongHeader
        return super()._proc_member(tar)


def _inner(name: str) -> PurePosixPath:
    """A member's place inside the run folder; ValueError for one that leads elsewhere or has no place
    there."""
    path = PurePosixPath(name)
    if (
        path.is_absolute()
        or ".." in path.parts
        or "\\" in name
        or "\0" in name
        or len(path.parts) < 2
        or len(path.parts) > 12
    ):
        raise ValueError(f"{name!r} is not a file inside one run folder")
    inner = PurePosixPath(*path.parts[1:])
    if not _is_ours(inner):
        raise ValueError(
            f"{name!r} has no place in a run folder: that holds {', '.join(sorted(_TOP))} and artifacts/"
        )
    return inner


def _settle(hidden: Path, home: Path) -> str:
    """Check what was unpacked, give it a free id, and put it in its place."""
    for name in ("run.json", "notes.json"):
        if (hidden / name).exists() and (hidden / name).stat().st_size > MAX_JSON:
            raise ValueError(f"{name} is larger than {MAX_JSON >> 20} MiB; this is not a run")
    if not (hidden / "run.json").exists():
        raise ValueError("the file holds no run.json; this is not an exported run")
    data = files.read_json(hidden / "run.json")
    kind = data.get("kind")
    if not isinstance(kind, str) or not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", kind):
        raise ValueError(f"the run's kind is {kind!r}, which no job kind is called")
    run_id = data.get("id")
    if not isinstance(run_id, str) or not folder.ID.fullmatch(run_id) or _taken(run_id):
        data |= {
            "imported_as": data.get("id") if isinstance(data.get("id"), str) else None,
            "id": (run_id := folder.new_id(kind)),
        }
    if data.get("status") in ("queued", "running"):
        data |= {"status": "interrupted", "reason": "exported before it was finished"}
    kept = {k: v for k, v in data.items() if k not in ("queue", "worker")}
    files.write_json(hidden / "run.json", kept | {"imported": True})
    if not (hidden / "notes.json").exists():
        files.write_json(hidden / "notes.json", {"title": "", "tags": [], "notes": ""})
    try:
        folder.read(hidden)
        folder.records(hidden)
        folder.samples(hidden)
    except RunError as e:
        raise (e if "newer version" in str(e) else ValueError(str(e).replace(f"{hidden}/", ""))) from None
    os.replace(hidden, home / run_id)
    return run_id


def _taken(run_id: str) -> bool:
    with contextlib.suppress(RunError):
        return library.find(run_id).name == run_id
    return False
