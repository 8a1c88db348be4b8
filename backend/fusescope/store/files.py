"""Reading and writing single files so that neither a kill nor a full disk leaves something misleading
behind."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fusescope.core.errors import RunError

_LONGEST_LINE, _MOST_UNPACKED = 64 << 20, 1 << 30  # against files made to exhaust memory
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def is_full(error: OSError) -> bool:
    """Whether the error says that the disk (or the user's quota) is full."""
    return error.errno in _FULL


@contextlib.contextmanager
def clear_errors(path: Path):
    """Turn the operating system's refusals into a RunError that says what to do."""
    try:
        yield
    except OSError as e:
        if is_full(e):
            raise RunError(f"the disk that holds {path} is full; free some space, then resume the run") from e
        raise RunError(f"{path} cannot be written: {e.strerror or e}") from e


def write_json(path: Path, data: Any, durable: bool = False) -> None:
    """Replace a file by rename, so a reader sees the old or the new text and never half of one; durable =
    fsync before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "w") as f:
            json.dump(data, f, indent=1)
            f.write("\n")
            if durable:
                f.flush()
                os.fsync(f.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> dict:
    """The JSON object in a file; RunError where it is missing, torn or something else."""
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RunError(f"{path.parent} is not a run folder: it has no {path.name}") from None
    except (ValueError, RecursionError):
        raise RunError(
            f"{path} is torn or not JSON; delete the run, or restore the file from a copy"
        ) from None
    except OSError as e:
        raise RunError(f"{path} cannot be read: {e.strerror or e}") from None
    if not isinstance(data, dict):
        raise RunError(f"{path} holds {type(data).__name__}, not a JSON object; this is not a run's file")
    return data


def lines(path: Path) -> Iterator[dict]:
    """The JSON objects of a .jsonl file, or of the same file as .jsonl.gz; none where neither exists.

    A torn last line is left out: its writer was killed in the middle of it. A torn line with others after it
    is a RunError.
    """
    packed = path.with_name(path.name + ".gz")
    try:
        if path.exists():
            f = open(path, "rb")
        elif packed.exists():
            f = gzip.open(packed, "rb")
        else:
            return
        with f:
            torn, read = None, 0
            for number, line in enumerate(iter(lambda: f.readline(_LONGEST_LINE), b""), 1):
                read += len(line)
                if len(line) == _LONGEST_LINE or (read > _MOST_UNPACKED and isinstance(f, gzip.GzipFile)):
                    raise RunError(
                        f"{path} is larger than any run's: a line over 64 MiB, or over 1 GiB unpacked"
                    )
                if torn:
                    raise RunError(
                        f"{path}: line {torn} is not JSON though more follow; something else changed the file"
                    )
                try:
                    data = json.loads(line)
                except (ValueError, RecursionError):
                    torn = number
                    continue
                if isinstance(data, dict):
                    yield data
                else:
                    torn = number
    except (OSError, EOFError) as e:  # EOFError: a gzip cut short
        raise RunError(f"{path} cannot be read: {e}") from None


def mend(fd: int) -> None:
    """Make an append-only file end in a whole line: finish one that only lacks its newline, cut off a torn
    one."""
    size = os.fstat(fd).st_size
    if size == 0 or os.pread(fd, 1, size - 1) == b"\n":
        return
    start, tail = size, b""
    while start > 0 and b"\n" not in tail:
        step = min(65536, start)
        start -= step
        tail = os.pread(fd, step, start) + tail
    cut = start + tail.rfind(b"\n") + 1
    try:
        whole = isinstance(json.loads(tail[tail.rfind(b"\n") + 1 :]), dict)
    except ValueError:
        whole = False
    if whole:
        os.write(fd, b"\n")
    else:
        os.ftruncate(fd, cut)


def append(fd: int, text: bytes) -> None:
    """Append all of the text or nothing: what got through before the disk was full is taken back."""
    before = os.fstat(fd).st_size
    done = 0
    try:
        while done < len(text):
            done += os.write(fd, text[done:])
    except OSError:
        os.ftruncate(fd, before)
        raise


def take_lock(folder: Path, wait_s: float = 0.0) -> int | None:
    """An open descriptor that holds the exclusive flock on a folder, or None where another process holds it.

    Readers hold a shared lock for microseconds while they ask, so a writer waits a little. The lock ends with
    the last copy of the descriptor: it can be handed to another process without a gap.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    end = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            if time.monotonic() >= end:
                os.close(fd)
                return None
            time.sleep(0.01)
        except OSError as e:
            os.close(fd)
            raise RunError(
                f"files in {folder} cannot be locked ({e.strerror}); set FUSESCOPE_PROFILES to a local disk"
            ) from e


def is_locked(folder: Path) -> bool:
    """Whether some process holds the exclusive flock on the folder."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
