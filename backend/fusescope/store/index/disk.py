"""Files of the index: where they are, who may change them, and reading and replacing one."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from fusescope.core import paths
from fusescope.core.errors import RunError
from fusescope.core.machine import locks, runtime
from fusescope.store.bounded import plain

VERSION = 6  # another schema, or other words of a run: another folder
_PATIENCE_S = 20.0  # for a process that brings the index up to date; one that was stopped never ends


def place() -> Path | None:
    """The index's folder, in the user's runtime folder where profiles/ may only be read; None where neither
    can be written."""
    home = paths.profiles()
    with contextlib.suppress(OSError, RunError):
        if not os.access(home if home.is_dir() else home.parent, os.W_OK):
            name = hashlib.sha256(os.path.realpath(home).encode(errors="surrogateescape")).hexdigest()[:12]
            home = runtime.private() / f"index-{name}"
        home.mkdir(parents=True, exist_ok=True)
        where = home / ".index" / f"v{VERSION}"
        plain.make_folder(where.parent)
        plain.make_folder(where)
        return where if plain.is_text(str(where)) else None  # Arrow and DuckDB take no other path
    return None


@contextlib.contextmanager
def locked(where: Path | None) -> Iterator[bool]:
    """Whether this process alone may change the files meanwhile."""
    fd = None
    if where is not None:
        with contextlib.suppress(OSError):
            fd = plain.descriptor(where / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield fd is not None and _taken(fd)
    finally:
        if fd is not None:
            os.close(fd)


def _taken(fd: int) -> bool:
    with contextlib.suppress(OSError):  # a file system without locks
        return locks.take(fd, _PATIENCE_S)
    return False


def lease(files: list[Path], stack: contextlib.ExitStack) -> bool:
    """Keep files from being dropped until the stack is closed; False where one is gone already."""
    for file in files:
        try:
            fd = plain.descriptor(file)
        except OSError:
            return False
        stack.callback(os.close, fd)
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_SH)
    return True


def drop(file: Path) -> None:
    """Delete a file unless a process reads it. To be called under the lock, as ``lease`` is."""
    with contextlib.suppress(OSError):
        fd = plain.descriptor(file)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.unlink()
        finally:
            os.close(fd)


def read(file: Path, schema):
    """The table in a file; an empty one where it is missing, torn or of another schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with (
        contextlib.suppress(OSError, pa.ArrowException),
        plain.opened(file) as opened,
        pq.ParquetFile(opened) as parquet,
    ):
        if parquet.schema_arrow.equals(schema):
            return parquet.read()
    return schema.empty_table()


def replace(file: Path, write) -> bool:
    """Whether ``write(path)`` could make the file's new content, which then takes its place."""
    import duckdb
    import pyarrow as pa

    part = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        write(part)
        os.replace(part, file)
    except (OSError, pa.ArrowException, duckdb.IOException):
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        return False
    return True


def write_table(table):
    """What ``replace`` takes to write an Arrow table."""
    import pyarrow.parquet as pq

    return lambda path: pq.write_table(table, path)
