"""Opening the files of runs: plain files in plain folders, from the run's own on, and nothing else.

A named pipe in a file's place blocks the process that opens it, a device has no end, a link leads elsewhere.
Hard links are plain files: backups use them, and only a user who may read a file can make one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fusescope.core.errors import RunError

ID = re.compile(r"\d{8}-\d{6}-[a-z][a-z0-9_]*-[0-9a-f]{6}")
"""The name of a run's folder."""
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
}
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class NotPlain(OSError):
    """Something else lies where a plain file or folder should; ``strerror`` says what."""


def descriptor(file: str | Path, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """A descriptor of a plain file. NotPlain for anything else, OSError as os.open."""
    file = os.fspath(file)
    for home in _folders(file):
        _refuse(os.lstat(home).st_mode, stat.S_IFDIR, f"its folder {os.path.basename(home)}", home)
    with contextlib.suppress(FileNotFoundError):  # before it is opened: opening a device may do something
        _refuse(os.lstat(file).st_mode, stat.S_IFREG, "it", file)
    fd = os.open(file, flags | _SAFE, mode)
    try:
        _refuse(os.fstat(fd).st_mode, stat.S_IFREG, "it", file)
    except NotPlain:
        os.close(fd)
        raise
    return fd


def opened(file: str | Path) -> BinaryIO:
    """A plain file, open for reading bytes. NotPlain, OSError as ``descriptor``."""
    return open(descriptor(file), "rb")


def read(file: str | Path, most: int) -> bytes:
    """All of a plain file. RunError where it has more than ``most`` bytes, OSError as ``descriptor``."""
    with opened(file) as f:
        size = os.fstat(f.fileno()).st_size
        data = f.read(min(size, most) + 1)  # a buffer of that length is made first
        if len(data) > size:  # it grew
            data += f.read(most + 1 - len(data))
    if len(data) > most:
        raise RunError(f"{file} is larger than {most >> 20} MiB; this is not a run's file")
    return data


@contextlib.contextmanager
def made(file: str | Path) -> Iterator[int]:
    """A descriptor of an empty plain file to write to, in the place of one that was there. NotPlain, OSError
    as ``descriptor``."""
    fd = descriptor(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        yield fd
    finally:
        os.close(fd)


def make_folder(home: str | Path) -> None:
    """Have a folder there. NotPlain where something else is, OSError as os.mkdir."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(home)
    _refuse(os.lstat(home).st_mode, stat.S_IFDIR, "it", os.fspath(home))


def touch(file: str | Path) -> None:
    """Have an empty file there, or renew its time. NotPlain, OSError as ``descriptor``."""
    fd = descriptor(file, os.O_WRONLY | os.O_CREAT)
    try:
        os.utime(fd)
    finally:
        os.close(fd)


def refuse_odd(file: str | Path) -> None:
    """RunError where something lies there that is no plain file, or cannot be opened."""
    try:
        os.close(descriptor(file))
    except FileNotFoundError:
        return
    except OSError as e:
        raise RunError(f"{file} cannot be read: {e.strerror or e}") from None


def is_file(file: str | Path) -> bool:
    """Whether it is a plain file, reached through no link from its run's folder on."""
    try:
        if not stat.S_ISREG(os.lstat(file).st_mode):
            return False
        return all(stat.S_ISDIR(os.lstat(home).st_mode) for home in _folders(os.fspath(file)))
    except OSError:
        return False


def files(home: Path) -> list[Path]:
    """The plain files below a run's folder, sorted, without those whose names are no text or begin with a
    dot."""
    found = []
    for at, folders, names in os.walk(home):  # follows no links
        folders[:] = filter(_shown, folders)
        found += [file for name in filter(_shown, names) if is_file(file := Path(at, name))]
    return sorted(found)


def _shown(name: str) -> bool:
    return not name.startswith(".") and is_text(name)


def is_text(name: str) -> bool:
    """Whether a file's name is UTF-8; Python puts lone surrogates in the place of other bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _folders(file: str) -> list[str]:
    """The folders between a file and the run that holds it, that one included; none of a file elsewhere."""
    found, home = [], os.path.dirname(file)
    while home and home != os.path.dirname(home):
        found.append(home)
        if ID.fullmatch(os.path.basename(home)):
            return found
        home = os.path.dirname(home)
    return []


def _refuse(mode: int, wanted: int, what: str, path: str) -> None:
    if stat.S_IFMT(mode) != wanted:
        is_now = _KINDS.get(stat.S_IFMT(mode), "of another kind")
        plain = "no plain file" if wanted == stat.S_IFREG else "no plain folder"
        raise NotPlain(errno.EINVAL, f"{what} is {is_now}, {plain}", path)
