"""The token that a browser shows once: from FUSESCOPE_TOKEN, else from a file that only its user can read, so
that a restart keeps open tabs alive.

A cookie holds a key derived from the token, not the token. Both are compared in constant time.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fusescope.core import paths
from fusescope.core.machine import locks

_FORM = re.compile(r"[A-Za-z0-9_-]{16,128}")
_PATIENCE_S = 2.0  # for another server that makes the token


@dataclass(frozen=True)
class Secret:
    """What lets a request in; ``token`` is None where none is required."""

    token: str | None = field(repr=False)
    where: str = ""
    """Where the user finds the token again: a file or a variable."""
    warning: str = ""

    @property
    def cookie(self) -> str:
        """The value of the cookie."""
        return hmac.new((self.token or "").encode(), b"fusescope cookie", hashlib.sha256).hexdigest()

    def is_token(self, given: str) -> bool:
        """Whether this is the token, or a pasted address that ends in it."""
        return self._equal(self.token, given.strip().rpartition("token=")[2])

    def is_cookie(self, given: str) -> bool:
        return self._equal(self.cookie, given)

    def _equal(self, ours: str | None, given: str) -> bool:
        if self.token is None or ours is None:
            return False
        return hmac.compare_digest(ours.encode(), given.encode("utf-8", "surrogatepass"))


def folder() -> Path:
    """Where the token is kept (FUSESCOPE_STATE, default fusescope/ of the user's state folder)."""
    return Path(os.environ.get("FUSESCOPE_STATE") or paths.user_folder("XDG_STATE_HOME", ".local/state"))


def load() -> Secret:
    """The server's secret. ValueError for a FUSESCOPE_TOKEN that is too short or has other characters."""
    if os.environ.get("FUSESCOPE_NO_TOKEN", "0") not in ("", "0"):
        return Secret(None)
    given = os.environ.get("FUSESCOPE_TOKEN")
    if given is None:
        return _kept()
    if not _FORM.fullmatch(given):
        raise ValueError(
            f"FUSESCOPE_TOKEN must be 16 to 128 characters of A-Z, a-z, 0-9, _ and -; it has {len(given)}"
            + (", others among them" if 16 <= len(given) <= 128 else "")
        )
    return Secret(given, "the variable FUSESCOPE_TOKEN of the server")


def _kept() -> Secret:
    """The token of the user's file, made on the first start. Where no file can be trusted the token lives
    with the server alone."""
    try:
        file = folder() / "token"
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = file.parent.stat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise PermissionError(f"{file.parent} must belong to you and not be writable by others")
        with _alone(file.parent):
            return Secret(_read(file) or _make(file), str(file))
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        reason = (
            f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.strerror else error
        )
        warning = f"The token ends with this server, because it cannot be kept in a file ({reason})."
        return Secret(secrets.token_hex(24), "the output of the server", warning)


def _read(file: Path) -> str | None:
    """The token in the file; None where there is none or where others could have read it. OSError for
    anything but a regular file of this user's."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(handle, "rb") as opened:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(f"{file} must be a regular file of yours")
        text = opened.read(200).decode("ascii", "replace").strip()
    open_to_others = found.st_mode & 0o077 or found.st_nlink != 1
    return text if not open_to_others and _FORM.fullmatch(text) else None


def _make(file: Path) -> str:
    """Write a new token."""
    token = secrets.token_hex(24)
    draft = file.with_name(f".token-{secrets.token_hex(6)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(handle, "w") as opened:
            opened.write(f"{token}\n")
        os.replace(draft, file)
    finally:
        draft.unlink(missing_ok=True)
    return token


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Servers that start together make one token: the folder's lock, for as long as nobody keeps it and where
    its file system has one."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            locks.take(handle, _PATIENCE_S)
        yield
    finally:
        os.close(handle)
