"""Reading and writing single files so that neither a kill nor a full disk leaves something misleading
behind."""

from __future__ import annotations

import codecs
import contextlib
import errno
import gzip
import io
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fusescope.core import whole_files
from fusescope.core.errors import RunError
from fusescope.core.machine import locks
from fusescope.store.bounded import plain

# Against files made to exhaust memory or time. JSON lines of runs pack 27 to 1 at most.
_LONGEST_LINE, _MOST_UNPACKED, _MOST_LINES = 16 << 20, 1 << 30, 4 << 30
_MOST_RATIO, _MOST_PACKED_LINES = 100, 1_000_000
_MOST_JSON = 64 << 20
_DEEPEST, _MOST_VALUES = 64, 4_000_000
_CHUNK = 1 << 20
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def is_full(error: OSError) -> bool:
    """Whether the error says that the disk (or the user's quota) is full."""
    return error.errno in _FULL


def full_disk(path: Path) -> str:
    """The beginning of a sentence: which disk is full, and for which folder that matters."""
    disk = ""
    with contextlib.suppress(OSError, ValueError):
        real = os.path.realpath(path)
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as f:
            mounts = [line.split()[1].encode().decode("unicode_escape") for line in f]
        disk = max((m for m in mounts if os.path.commonpath([m, real]) == m), key=len)
    return f"the disk that holds {path}{f' (mounted at {disk})' if disk else ''} is full"


@contextlib.contextmanager
def clear_errors(path: Path):
    """Turn the operating system's refusals into a RunError that says what to do."""
    try:
        yield
    except OSError as e:
        if is_full(e):
            raise RunError(f"{full_disk(path)}; free some space, then resume the run") from e
        raise RunError(f"{path} cannot be written: {e.strerror or e}") from e


def write_json(path: Path, data: Any) -> None:
    replace(path, f"{json.dumps(data, indent=1)}\n")


def replace(path: Path, text: str) -> None:
    """Replace a file by rename, so that a reader sees the old or the new text and never half of one; fsync
    before, or a power cut could leave the name with nothing behind it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with plain.made(temporary) as fd:
            append(fd, text.encode())
            os.fsync(fd)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def parse(text: bytes) -> Any:
    """JSON from a file, UTF-8: lone surrogates, which nothing can write, become U+FFFD. ValueError for what
    is no JSON, nested deeper than any run's, or of so many values that small ones take much memory."""
    if len(text) > _MOST_VALUES and sum(map(text.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        raise ValueError(f"more than {_MOST_VALUES:,} values")
    data = json.loads(text.decode())
    if text.count(b"{") + text.count(b"[") > _DEEPEST and _depth(data) > _DEEPEST:
        raise ValueError(f"nested deeper than {_DEEPEST}")
    return _encodable(data) if b"\\ud" in text or b"\\uD" in text else data


def _depth(data: Any) -> int:
    level, depth = [data], 0
    while level := [v for v in level if isinstance(v, dict | list) and v]:
        depth += 1
        level = [inner for v in level for inner in (v.values() if isinstance(v, dict) else v)]
    return depth


def _encodable(data: Any) -> Any:
    if isinstance(data, str):
        return data.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(data, dict):
        return {_encodable(k): _encodable(v) for k, v in data.items()}
    return [_encodable(v) for v in data] if isinstance(data, list) else data


def read_json(path: Path) -> dict:
    """The JSON object in a file; RunError where it is missing, torn or something else."""
    try:
        data = parse(plain.read(path, _MOST_JSON))
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


@dataclass(frozen=True)
class Contents:
    """What an append-only file holds, packed or not: whole lines, bytes, and their CRC-32."""

    lines: int
    bytes: int
    crc32: int


def contents(path: Path, text: bool = False) -> Contents:
    """What a .jsonl file, or the same file as .jsonl.gz, holds; nothing where neither exists. RunError where
    it cannot be read, or should be ``text`` and is no UTF-8."""
    count = size = crc = since = 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    with _clear_reading(path), _opened(path) as (f, most):
        while chunk := f.read(_CHUNK):
            if text:
                decoder.decode(chunk)
            count, size, crc = count + chunk.count(b"\n"), size + len(chunk), zlib.crc32(chunk, crc)
            since = len(chunk) - end if (end := chunk.rfind(b"\n")) >= 0 else since + len(chunk)
            if size > most or since > _LONGEST_LINE:
                raise _too_large(path)
    return Contents(count, size, crc)


def has_size(path: Path, size: int) -> bool:
    """Whether a .jsonl file, or what is packed in its .jsonl.gz (modulo 2³², as gzip notes it), has so many
    bytes; one that does not exist has none."""
    packed = path.with_name(path.name + ".gz")
    try:
        if os.path.lexists(path):
            return plain.is_file(path) and path.stat().st_size == size
        if os.path.lexists(packed):
            with plain.opened(packed) as f:
                f.seek(-4, os.SEEK_END)
                return int.from_bytes(f.read(4), "little") == size % (1 << 32)
    except OSError:
        return False
    return size == 0


def lines(path: Path, noted: Contents | None = None) -> Iterator[dict]:
    """The JSON objects of a .jsonl file, or of the same file as .jsonl.gz; none where neither exists.

    A torn last line is left out: its writer was killed in the middle of it. RunError for a torn line with
    others after it, and at the end where as many bytes as were ``noted`` have another checksum.
    """
    torn, read, crc = None, 0, 0
    with _clear_reading(path), _opened(path) as (f, most):
        packed = isinstance(f, gzip.GzipFile)
        for number, line in enumerate(iter(lambda: f.readline(_LONGEST_LINE), b""), 1):
            read, crc = read + len(line), zlib.crc32(line, crc)
            if len(line) == _LONGEST_LINE or read > most or (packed and number > _MOST_PACKED_LINES):
                raise _too_large(path)
            if torn:
                raise RunError(
                    f"{path}: line {torn} is not JSON though more follow; something else changed the file"
                )
            try:
                data = parse(line)
            except (ValueError, RecursionError):
                torn = number
                continue
            if isinstance(data, dict):
                yield data
            else:
                torn = number
    if noted and read == noted.bytes and crc != noted.crc32:
        raise RunError(f"{path} was changed after its run ended: restore it from a copy, or measure again")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """A .jsonl file or its .jsonl.gz, and how many bytes may be read of it; an empty one where neither
    exists."""
    packed = path.with_name(path.name + ".gz")
    if os.path.lexists(path):
        with plain.opened(path) as f:
            yield f, _MOST_LINES
    elif os.path.lexists(packed):
        with plain.opened(packed) as whole, gzip.open(whole, "rb") as f:
            yield f, unpacked_limit(packed)
    else:
        yield io.BytesIO(), 0


def unpacked_limit(packed: Path) -> int:
    """How many bytes a compressed file of this size may unpack to."""
    return min(_MOST_UNPACKED, max(_MOST_RATIO * packed.stat().st_size, 1 << 20))


@contextlib.contextmanager
def _clear_reading(path: Path):
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise RunError(f"{path} cannot be read: its .gz is cut short or damaged") from None
    except UnicodeDecodeError:
        raise RunError(f"{path} cannot be read: it holds bytes that are no text in UTF-8") from None
    except OSError as e:
        raise RunError(f"{path} cannot be read: {e.strerror or e}") from None


def _too_large(path: Path) -> RunError:
    return RunError(
        f"{path} is larger than any run's: a line over {_LONGEST_LINE >> 20} MiB, "
        f"{_MOST_LINES >> 30} GiB of lines, or packed more than "
        f"{_MOST_UNPACKED >> 30} GiB, {_MOST_PACKED_LINES:,} lines or {_MOST_RATIO} times its size"
    )


def mend(fd: int) -> None:
    """Make an append-only file end in a whole line: finish one that only lacks its newline, cut off a torn
    one."""
    size = os.fstat(fd).st_size
    if size == 0 or os.pread(fd, 1, size - 1) == b"\n":
        return
    start, found = size, -1
    while start > 0 and found < 0:
        step = min(_CHUNK, start)
        start -= step
        found = os.pread(fd, step, start).rfind(b"\n")
    cut = start + found + 1
    try:
        whole = size - cut < _LONGEST_LINE and isinstance(parse(os.pread(fd, size - cut, cut)), dict)
    except (ValueError, RecursionError):
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
    try:
        taken = locks.take(fd, wait_s)
    except OSError as e:
        os.close(fd)
        raise RunError(
            f"files in {folder} cannot be locked ({e.strerror}); set FUSESCOPE_PROFILES to a local disk"
        ) from e
    if taken:
        return fd
    os.close(fd)
    return None


def is_locked(folder: Path) -> bool:
    """Whether some process holds the exclusive flock on the folder."""
    return whole_files.is_locked(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
