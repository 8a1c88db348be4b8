"""Parquet: how much a table can grow to is known before its first page is read.

What its footer declares, and the headers of its pages, by which readers allocate, bound what it unpacks to;
rows and columns bound the numbers; of texts, which a dictionary repeats at no cost, the bytes are counted
batch by batch. All of it takes time linear in the size of the file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from fusescope.core.errors import RunError
from fusescope.store.bounded import plain
from fusescope.store.bounded.pages import pages

_RATIO = 200  # of a table in memory to its file: tables of traces reach some 20
_FLOOR = 64 << 20  # what a small file may grow to all the same
_COLUMNS = 512
_BATCH = 1 << 16


def checked(file: Path) -> Path:
    """The file, where it can be read as one of our tables; RunError in one sentence else."""
    with clear(file):
        with plain.opened(file) as opened:
            stat = os.fstat(opened.fileno())
        why = _why_not(str(file), stat.st_size, stat.st_mtime_ns)
    if why:
        raise RunError(f"{file} is refused: {why}")
    return file


@contextlib.contextmanager
def clear(file: Path) -> Iterator[None]:
    """What Arrow and the operating system raise about a file, as a RunError."""
    import pyarrow as pa

    try:
        yield
    except UnicodeEncodeError:
        raise RunError(f"{str(file)!a} cannot be read: its name is no UTF-8") from None
    except (pa.ArrowException, OSError) as error:
        why = getattr(error, "strerror", None) or "it is cut short or damaged"
        raise RunError(f"{file} cannot be read: {why}") from None


@lru_cache(maxsize=4096)
def _why_not(file: str, size: int, mtime_ns: int) -> str | None:
    """The reason against reading a file of this size; None where there is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    most = max(_FLOOR, _RATIO * size)
    with pq.ParquetFile(file) as source:
        about, schema = source.metadata, source.schema_arrow
        if about.num_columns > _COLUMNS:
            return f"it has {about.num_columns} columns, a table has up to {_COLUMNS}"
        if nested := [f.name for f in schema if pa.types.is_nested(f.type)]:
            return f"column {nested[0][:80]} holds lists or records; a table has plain columns"
        chunks = [
            about.row_group(g).column(c) for g in range(about.num_row_groups) for c in range(len(schema))
        ]
        declared = sum(max(0, chunk.total_uncompressed_size) for chunk in chunks)
        numbers = about.num_rows * len(schema) * 8
        if any(c.num_values > about.num_rows for c in chunks) or max(declared, numbers) > most:
            return _too_large(max(declared, numbers), most)
        found, why = _in_pages(file, chunks)
        if why or found > most:
            return why or _too_large(found, most)
        declared = max(declared, found)
        texts = [f.name for f in schema if _is_text(f.type)]
        if not texts or about.num_rows * declared <= most:
            return None
    with pq.ParquetFile(file, read_dictionary=texts) as source:
        total = 0
        for batch in source.iter_batches(batch_size=_BATCH, columns=texts):
            total += sum(map(_text_bytes, batch.columns))
            if total > most:
                return _too_large(total, most)
    return None


def _in_pages(file: str, chunks: list) -> tuple[int, str | None]:
    """(bytes that the pages of these column chunks unpack to, as their headers say; the reason against
    reading them). A page of more values than its chunk has, or than its bytes can hold, is damaged."""
    total, fd = 0, os.open(file, os.O_RDONLY)
    try:
        for chunk in chunks:
            offsets = [chunk.data_page_offset, chunk.has_dictionary_page and chunk.dictionary_page_offset]
            begin, values = min(filter(None, offsets), default=0), 0  # an empty chunk has no data page
            for page in pages(fd, begin, begin + chunk.total_compressed_size):
                total += page.size
                values += 0 if page.dictionary else page.values
                if values > chunk.num_values or (page.dictionary and page.values > page.size):
                    return total, "a page says to hold more values than there are"
    except ValueError as error:
        return total, str(error)
    finally:
        os.close(fd)
    return total, None


def _is_text(kind) -> bool:
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return not pa.types.is_primitive(kind)


def _text_bytes(column) -> int:
    """Bytes of a column's texts, each counted as often as it occurs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        return column.nbytes
    lengths = pc.cast(pc.binary_length(column.dictionary), pa.int64())
    return (pc.sum(pc.take(lengths, column.indices)).as_py() or 0) if len(lengths) else 0


def _too_large(found: int, most: int) -> str:
    return (
        f"it would take {found >> 20:,} MiB of memory or more, a table of its size up to {most >> 20:,} MiB"
    )
