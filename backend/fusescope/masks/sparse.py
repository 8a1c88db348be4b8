"""A boolean matrix as COO, CSR and BSR, and back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class COO:
    """rows, columns: int32 (kept,), sorted by row, then column."""

    shape: tuple[int, int]
    rows: np.ndarray
    columns: np.ndarray

    def dense(self) -> np.ndarray:
        out = np.zeros(self.shape, bool)
        out[self.rows, self.columns] = True
        return out


@dataclass(frozen=True)
class CSR:
    """Row i keeps columns[offsets[i]:offsets[i+1]], ascending. offsets: int64 (rows + 1,); columns: int32
    (kept,)."""

    shape: tuple[int, int]
    offsets: np.ndarray
    columns: np.ndarray

    def dense(self) -> np.ndarray:
        out = np.zeros(self.shape, bool)
        out[np.repeat(np.arange(self.shape[0]), np.diff(self.offsets)), self.columns] = True
        return out


@dataclass(frozen=True)
class BSR:
    """Block row i holds blocks offsets[i] … of block columns ``columns``; blocks: bool (live, block, block),
    0 outside."""

    shape: tuple[int, int]
    offsets: np.ndarray
    columns: np.ndarray
    blocks: np.ndarray

    def dense(self) -> np.ndarray:
        side = self.blocks.shape[1]
        rows = len(self.offsets) - 1
        out = np.zeros((rows, -(-self.shape[1] // side), side, side), bool)
        out[np.repeat(np.arange(rows), np.diff(self.offsets)), self.columns] = self.blocks
        return out.transpose(0, 2, 1, 3).reshape(rows * side, -1)[: self.shape[0], : self.shape[1]]


def to_coo(dense: np.ndarray) -> COO:
    """COO of a boolean matrix; ValueError for anything that is not one."""
    _check(dense)
    rows, columns = np.nonzero(dense)
    return COO(dense.shape, rows.astype(np.int32), columns.astype(np.int32))


def to_csr(dense: np.ndarray) -> CSR:
    """CSR of a boolean matrix; ValueError for anything that is not one."""
    _check(dense)
    offsets = np.concatenate([[0], np.cumsum(dense.sum(axis=1, dtype=np.int64))])
    return CSR(dense.shape, offsets, np.nonzero(dense)[1].astype(np.int32))


def to_bsr(dense: np.ndarray, block: int = 64) -> BSR:
    """BSR of a boolean matrix with square blocks; edges are padded with False. ValueError for other arrays
    and block < 1."""
    _check(dense)
    if block < 1:
        raise ValueError(f"the side of a block is at least 1, not {block}")
    rows, columns = -(-dense.shape[0] // block), -(-dense.shape[1] // block)
    padded = np.zeros((rows * block, columns * block), bool)
    padded[: dense.shape[0], : dense.shape[1]] = dense
    grid = padded.reshape(rows, block, columns, block).transpose(0, 2, 1, 3)
    live = grid.any(axis=(2, 3))
    offsets = np.concatenate([[0], np.cumsum(live.sum(axis=1, dtype=np.int64))])
    return BSR(dense.shape, offsets, np.nonzero(live)[1].astype(np.int32), grid[live])


def _check(dense) -> None:
    if not isinstance(dense, np.ndarray) or dense.dtype != np.bool_ or dense.ndim != 2:
        raise ValueError(
            f"not a boolean matrix: {getattr(dense, 'dtype', type(dense).__name__)} {np.shape(dense)}"
        )
