"""Tables in memory, as columns: NumPy arrays and coded texts; written as Parquet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

ABSENT = int(np.iinfo(np.int64).min)
"""Stands for "no value" in columns of whole numbers; written as null. In columns of floats that is NaN, in codes -1."""


class Texts(dict):
    """Texts to codes from 0 on, in order of their first appearance: ``texts[value]`` gives the code."""

    def __missing__(self, value) -> int:
        code = self[value] = len(self)
        return code

    def codes(self, values: Iterable) -> np.ndarray:
        """int32 codes; -1 for None and for empty bytes."""
        return np.array([-1 if v is None or v == b"" else self[v] for v in values], np.int32)

    def values(self) -> list[str]:
        """The texts by code; what is no valid Unicode (a lone surrogate) is replaced."""
        return [v.decode(errors="replace") if isinstance(v, bytes) else str(v).encode(errors="replace").decode() for v in self]


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
        """Rows whose text satisfies ``wanted(text)``, which is asked once a text."""
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
            return np.array(values, np.int64)
    return np.array([v if type(v) is int and abs(v) < 1 << 62 else _whole(v) for v in values], np.int64)


def real(values: Sequence) -> np.ndarray:
    """float64 of a column that should be numbers; what is none is NaN."""
    return np.fromiter((v if type(v) in (int, float) else np.nan for v in values), np.float64, len(values))


def triples(values: list) -> np.ndarray:
    """(n, 3) int64 of a column of [x, y, z]; rows of ABSENT for what is none."""
    found = np.full((len(values), 3), ABSENT, np.int64)
    if set(map(type, values)) <= {type(None)}:
        return found
    for row, v in enumerate(values):
        if type(v) is list and len(v) == 3:
            x, y, z = v
            if type(x) is type(y) is type(z) is int and min(v) >= 0 and max(v) < 1 << 32:
                found[row] = v
    return found


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
    """One Parquet file. Columns: int64 (ABSENT → null), float64 (NaN → null), bool, Coded (dictionary-encoded texts)."""
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
    pq.write_table(pa.table(arrays), path, compression="zstd", row_group_size=1 << 18)
