"""Tables in memory, as columns: NumPy arrays and coded texts; written as Parquet."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np

ABSENT = int(np.iinfo(np.int64).min)
"""Stands for "no value" in columns of whole numbers; written as null. In columns of floats that is NaN, in
codes -1."""
_WIDE = 1 << 24  # values further apart than this are numbered first


class Texts(dict):
    """Texts to codes from 0 on, in order of their first appearance: ``texts[value]`` gives the code."""

    def __missing__(self, value) -> int:
        code = self[value] = len(self)
        return code

    def codes(self, values: Sequence) -> np.ndarray:
        """int32 codes; -1 for None and for empty bytes."""
        there, which = distinct(values)
        return np.array([-1 if value is None or value == b"" else self[value] for value in there], np.int32)[
            which
        ]

    def values(self) -> list[str]:
        """The texts by code; what is no valid Unicode (a lone surrogate) is replaced."""
        return [
            v.decode(errors="replace") if isinstance(v, bytes) else str(v).encode(errors="replace").decode()
            for v in self
        ]


def distinct(values: Sequence) -> tuple[list, np.ndarray]:
    """(each value once, in order; int64 place of every value among them)."""
    there = dict.fromkeys(values)
    if len(there) <= 1:
        return list(there), np.zeros(len(values), np.int64)
    for place, value in enumerate(there):
        there[value] = place
    return list(there), np.fromiter(map(there.__getitem__, values), np.int64, len(values))


class Coded:
    """A column of texts: int32 ``codes`` (-1 = none) into ``values``."""

    def __init__(self, codes: np.ndarray, values: list[str]):
        self.codes, self.values = codes, values

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows) -> Coded:
        return Coded(self.codes[rows], self.values)

    def text(self, row: int) -> str | None:
        code = self.codes[row]
        return None if code < 0 else self.values[code]

    def mask(self, wanted) -> np.ndarray:
        """Rows whose text satisfies ``wanted(text)``, which is called once per text."""
        hits = np.array([bool(wanted(v)) for v in self.values] + [False])
        return hits[self.codes]


def coded(values: Sequence) -> Coded:
    texts = Texts()
    codes = texts.codes(values)
    return Coded(codes, texts.values())


def whole(values: list) -> np.ndarray:
    """int64 of a column that should be whole numbers: texts as "0x0" are read, what is none is ABSENT."""
    kinds = set(map(type, values))  # most columns hold one
    if kinds <= {type(None)}:
        return np.full(len(values), ABSENT, np.int64)
    if kinds == {int}:
        with contextlib.suppress(OverflowError):
            return np.fromiter(values, np.int64, len(values))
    return np.array([v if type(v) is int and abs(v) < 1 << 62 else _whole(v) for v in values], np.int64)


def real(values: Sequence) -> np.ndarray:
    """float64 of a column that should be numbers; what is none is NaN."""
    return np.fromiter((v if type(v) in (int, float) else np.nan for v in values), np.float64, len(values))


def triples(values: list) -> np.ndarray:
    """(n, 3) int64 of a column of [x, y, z], each from 0 to 2^32 - 1; rows of ABSENT for what is none."""
    found, kinds = np.full((len(values), 3), ABSENT, np.int64), set(map(type, values))
    if kinds <= {type(None)}:
        return found
    if kinds == {list} and set(map(len, values)) == {3}:
        rows, sides = range(len(values)), list(chain.from_iterable(values))
    else:
        rows = [n for n, v in enumerate(values) if type(v) is list and len(v) == 3]
        sides = list(chain.from_iterable(map(values.__getitem__, rows)))
    if set(map(type, sides)) <= {int}:
        with contextlib.suppress(OverflowError):
            there = np.fromiter(sides, np.int64, len(sides)).reshape(-1, 3)
            sound = ((there >= 0) & (there < 1 << 32)).all(axis=1)
            found[np.array(rows, np.int64)[sound]] = there[sound]
            return found
    for row in rows:
        v = values[row]
        if set(map(type, v)) == {int} and min(v) >= 0 and max(v) < 1 << 32:
            found[row] = v
    return found


def same(columns: Sequence[np.ndarray]) -> np.ndarray:
    """One int64 a row, equal in two rows where all columns (of whole numbers) are.

    Sorting such numbers is many times cheaper than sorting rows.
    """
    key, size = np.zeros(len(columns[0]), np.int64), 1
    if not len(key):
        return key
    for column in columns:
        low = int(column.min())
        span = int(column.max()) - low + 1
        codes = column - low if span < _WIDE else np.unique(column, return_inverse=True)[1].reshape(-1)
        span = span if span < _WIDE else int(codes.max()) + 1
        if size * span >= 1 << 62:
            key = np.unique(key, return_inverse=True)[1].reshape(-1)
            size = int(key.max()) + 1
        key, size = key * span + codes, size * span
    return key


def _whole(value) -> int:
    if isinstance(value, str):
        try:
            number = int(value, 0)
        except ValueError:
            return ABSENT
        return number if abs(number) < 1 << 62 else ABSENT
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    return ABSENT


def write(path: Path, columns: dict) -> None:
    """One Parquet file. Columns: int64 (ABSENT → null), float64 (NaN → null), bool, Coded (dictionary-encoded
    texts)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = {}
    for name, column in columns.items():
        if isinstance(column, Coded):
            codes = pa.array(column.codes.astype(np.int32), mask=column.codes < 0)
            arrays[name] = pa.DictionaryArray.from_arrays(codes, pa.array(column.values, pa.string()))
        elif column.dtype == np.int64:
            arrays[name] = pa.array(column, mask=column == ABSENT)
        elif column.dtype == np.float64:
            arrays[name] = pa.array(column, mask=np.isnan(column))
        else:
            arrays[name] = pa.array(column)
    texts = [name for name, column in columns.items() if isinstance(column, Coded)]
    pq.write_table(pa.table(arrays), path, compression="zstd", row_group_size=1 << 18, use_dictionary=texts)
