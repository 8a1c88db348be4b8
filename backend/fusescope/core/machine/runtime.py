"""The folders for locks, sockets and process state: one for all users of the machine, one of this user alone.

Any user may have made the shared folder first, and its owner can put anything into it at any moment. So
it is opened by descriptor without following links, owner, type and mode are checked at each step, nothing in
it is ever truncated, and what is not as it must be is left alone: locks are then in the user's own folder,
and a warning says that other users are not waited for.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fusescope.core.paths import user_folder
from fusescope.core.schema import Parameter

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def seconds(variable: str, default: float) -> float:
    """A time that an environment variable sets; ValueError where its value is no number of at least 0."""
    text = os.environ.get(variable)
    return Parameter(variable, "float", low=0).read(text) if text else default


def shared() -> Path:
    """The machine-wide folder for GPU locks, the same for every checkout, session and user of this machine:
    in /run/lock where all may write there (Debian, Ubuntu), else in the system's temporary folder;
    FUSESCOPE_RUNTIME moves it. Only ``opened`` says whether it can be trusted."""
    given = os.environ.get("FUSESCOPE_RUNTIME")
    if given:
        path = Path(os.path.abspath(given))
        with contextlib.suppress(OSError):
            if path.is_symlink() and path.lstat().st_uid in _trusted_owners():
                path = path.resolve()
        return path
    lock = Path("/run/lock")
    base = lock if lock.is_dir() and os.access(lock, os.W_OK) else Path(tempfile.gettempdir())
    return base / "fusescope"


def private() -> Path:
    """A folder of this user alone (mode 0700) for sockets and process state: in the shared folder where
    nobody else could exchange it there, else in XDG_RUNTIME_DIR, else in the user's cache folder.
    PermissionError where there is none that can be written."""
    candidates = [shared() / f"user-{os.getuid()}"]
    if os.path.isabs(os.environ.get("XDG_RUNTIME_DIR", "")):
        candidates.append(Path(os.environ["XDG_RUNTIME_DIR"]) / "fusescope")
    candidates.append(user_folder("XDG_CACHE_HOME", ".cache") / "runtime")
    refused = []
    for path in candidates:
        try:
            if path is candidates[0]:
                with opened(path.parent) as base:
                    _refuse_foreign(base, path.parent)
                for parent in path.parent.resolve().parents:
                    _refuse_changeable(parent)
            else:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(_own(path))
            return path
        except OSError as e:
            refused.append(f"{path} ({reason(e)})")
    raise PermissionError(
        f"no folder for sockets and locks is usable: {'; '.join(refused)}; "
        "set FUSESCOPE_RUNTIME to a folder of your own"
    )


@contextlib.contextmanager
def opened(path: Path, inside: str | None = None) -> Iterator[int]:
    """A descriptor of a folder for all users, or of the folder ``inside`` it; made with mode 1777 where it is
    missing.

    PermissionError where it is a link or no folder, or where users could remove each other's files from it:
    it must have the sticky bit where others may write, and one that another user made must let all write.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _closing(_open(path, None)) as folder:
        if inside is None:
            yield folder
            return
        with _closing(_open(Path(inside), folder)) as inner:
            yield inner


def open_file(name: str, folder: int) -> int:
    """A descriptor, for reading and locking alone, of a regular file in an opened folder. PermissionError
    where it is a link, has a second name, or is no file."""
    try:
        fd = os.open(name, _FILE, dir_fd=folder)
    except OSError as e:
        raise _as_refusal(e, f"{name} is a link") from None
    facts = os.fstat(fd)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        os.close(fd)
        raise PermissionError(f"{name} is not a regular file with one name")
    return fd


def new_file(name: str, folder: int) -> int:
    """A descriptor of a new, empty file in an opened folder, readable by all; FileExistsError."""
    fd = os.open(
        name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder
    )
    os.fchmod(fd, 0o644)  # whatever the umask
    return fd


def reason(e: OSError) -> str:
    """An error in words, without its number and path."""
    return e.strerror or str(e)


def _open(path: Path, at: int | None) -> int:
    made = True
    try:
        os.mkdir(path, 0o700, dir_fd=at)
    except FileExistsError:
        made = False
    try:
        fd = os.open(path, _FOLDER, dir_fd=at)
    except OSError as e:
        raise _as_refusal(e, f"{path} is a link or no folder") from None
    try:
        facts = os.fstat(fd)
        mode, mine = stat.S_IMODE(facts.st_mode), facts.st_uid == os.getuid()
        if mine and (made or (mode & 0o022 and not mode & stat.S_ISVTX)):
            mode = 0o1777 if made else mode | stat.S_ISVTX
            os.fchmod(fd, mode)
        if mode & 0o022 and not mode & stat.S_ISVTX:
            raise PermissionError(f"{path} lets users remove each other's files (mode {mode:o}, not 1777)")
        if facts.st_uid not in _trusted_owners() and mode & 0o1777 != 0o1777:
            raise PermissionError(f"{path} belongs to user {facts.st_uid} and has mode {mode:o}, not 1777")
        return fd
    except BaseException:
        os.close(fd)
        raise


def _own(path: Path) -> int:
    """A descriptor of a folder that is this user's alone and can be written."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    try:
        fd = os.open(path, _FOLDER)
    except OSError as e:
        raise _as_refusal(e, "it is a link or no folder") from None
    try:
        facts = os.fstat(fd)
        if facts.st_uid != os.getuid():
            raise PermissionError(f"it belongs to user {facts.st_uid}")
        if stat.S_IMODE(facts.st_mode) != 0o700:
            os.fchmod(fd, 0o700)
        if not os.access(path, os.W_OK):
            raise PermissionError("it cannot be written")
        return fd
    except BaseException:
        os.close(fd)
        raise


def _refuse_foreign(folder: int, path: Path) -> None:
    """The owner of a folder can exchange everything in it."""
    owner = os.fstat(folder).st_uid
    if owner not in _trusted_owners():
        raise PermissionError(f"{path} belongs to user {owner}")


def _refuse_changeable(path: Path) -> None:
    facts = path.stat()
    by_all = facts.st_mode & stat.S_IWOTH and not facts.st_mode & stat.S_ISVTX
    if by_all or facts.st_uid not in _trusted_owners() | _outside_users():
        raise PermissionError(f"{path} can be changed by another user")


def _trusted_owners() -> set[int]:
    return {0, os.getuid()}


def _outside_users() -> set[int]:
    """Who owns, as a user namespace shows it, what belongs to users outside of it, such as / of the host."""
    try:
        if Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]:
            return {int(Path("/proc/sys/kernel/overflowuid").read_text())}
    except (OSError, ValueError):
        pass
    return set()


def _as_refusal(e: OSError, says: str) -> OSError:
    """ELOOP and ENOTDIR, which a link gives, in words."""
    return PermissionError(says) if e.errno in (errno.ELOOP, errno.ENOTDIR) else e


@contextlib.contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)
