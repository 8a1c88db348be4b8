"""The headers of a Parquet file's pages, which say what each unpacks to: readers allocate by them, whatever
the footer declares. They are structs of Thrift's compact protocol."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

_WINDOW, _LARGEST = 1 << 9, 1 << 20  # bytes of a header that are read at once, and at most
_MOST = 1_000_000  # pages of a file
_DEEP = 8
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 12
_DATA, _DICTIONARY, _DATA_V2 = 5, 7, 8  # fields of a PageHeader that hold the kind's own header


class Page(NamedTuple):
    """size: bytes with its header, unpacked; values: how many it says to hold."""

    size: int
    values: int
    dictionary: bool


def pages(fd: int, begin: int, end: int) -> Iterator[Page]:
    """The pages of one column chunk, which takes these bytes of the file. ValueError for what is no page."""
    for _ in range(_MOST):
        if begin >= end:
            return
        header, size = _header(fd, begin)
        unpacked, packed = header.get(2), header.get(3)
        own = next((header[kind] for kind in (_DATA, _DICTIONARY, _DATA_V2) if kind in header), {1: 0})
        values = own.get(1) if isinstance(own, dict) else None
        if not all(type(n) is int and n >= 0 for n in (unpacked, packed, values)):
            raise ValueError("a page's header lacks its sizes")
        yield Page(size + unpacked, values, _DICTIONARY in header)
        begin += size + packed
    raise ValueError(f"a table has up to {_MOST:,} pages")


def _header(fd: int, at: int) -> tuple[dict, int]:
    """A page's header by the numbers of its fields, and its length in bytes."""
    for size in (_WINDOW, _LARGEST):
        data = os.pread(fd, size, at)
        try:
            return _struct(data, 0, _DEEP)
        except IndexError:
            if len(data) < size:
                break
    raise ValueError("a page's header is cut short")


def _struct(data: bytes, at: int, deep: int) -> tuple[dict, int]:
    """Integers and structs by field; texts are passed over. IndexError where the data ends before it."""
    if not deep:
        raise ValueError("a page's header is nested too deeply")
    found, number = {}, 0
    while byte := data[at]:
        at += 1
        number, kind = number + (byte >> 4), byte & 15
        if not byte >> 4:
            raw, at = _varint(data, at)
            number = _signed(raw)
        if kind in (_I16, _I32, _I64):
            raw, at = _varint(data, at)
            found[number] = _signed(raw)
        elif kind == _STRUCT:
            found[number], at = _struct(data, at, deep - 1)
        elif kind == _BINARY:
            length, at = _varint(data, at)
            at += length
        elif kind in (_TRUE, _FALSE, _BYTE, _DOUBLE):
            at += {_BYTE: 1, _DOUBLE: 8}.get(kind, 0)
        else:
            raise ValueError("a page's header has a field that Parquet does not know")
    return found, at + 1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for n in range(10):
        byte = data[at + n]
        value |= (byte & 127) << 7 * n
        if byte < 128:
            return value, at + n + 1
    raise ValueError("a page's header has a number of more than 64 bits")


def _signed(value: int) -> int:
    return value >> 1 ^ -(value & 1)
