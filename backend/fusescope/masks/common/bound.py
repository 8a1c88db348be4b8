"""A mask on a size: parameters resolved, tables made, ready to be evaluated at positions by NumPy, torch or
FlexAttention."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np

from fusescope.core.schema import check_int
from fusescope.masks.common import bounds
from fusescope.masks.common.defaults import LARGEST

_PIECE = 1 << 18  # elements evaluated at a time: temporaries of 1 MB stay in the cache


def check_sizes(seq_q: int, seq_k: int | None) -> tuple[int, int]:
    """Both sizes as ints; seq_k is seq_q where None. ValueError outside 1 … 2^20."""
    queries = check_int("seq_q", seq_q, 1, LARGEST)
    return queries, queries if seq_k is None else check_int("seq_k", seq_k, 1, LARGEST)


class _Grid:
    """A table of two dimensions as ``block`` reads it: at rows (r, 1) and columns (1, c) two gathers are much
    faster than one of pairs."""

    def __init__(self, table: np.ndarray):
        self.table, self.ndim = table, table.ndim

    def __getitem__(self, at):
        rows, columns = at
        if np.ndim(rows) != 2 or np.ndim(columns) != 2 or rows.shape[1] != 1 or columns.shape[0] != 1:
            return self.table[at]
        return np.take(self.table[rows[:, 0]], columns[0], axis=1)


class Bound:
    """A mask on seq_q queries and seq_k keys.

    ``values``: every parameter with its default resolved. ``offset`` = seq_k − seq_q: query row i stands at
    position i + offset, since the last query and the last key are aligned. ``sequences``: see Mask.
    """

    def __init__(
        self,
        mask,
        seq_q: int,
        seq_k: int,
        values: Mapping[str, Any],
        tables: Mapping[str, Any],
        formula: Callable,
        sequences: int | None,
    ):
        self.mask, self.seq_q, self.seq_k, self.sequences = mask, seq_q, seq_k, sequences
        self.offset = seq_k - seq_q
        self.values = dict(values)
        self._formula = formula
        self._given = tables
        self._tables = {name: table for name, table in tables.items() if isinstance(table, np.ndarray)}
        self._numbers = self.values | {
            name: number for name, number in tables.items() if name not in self._tables
        }
        self._numpy = SimpleNamespace(**self._numbers | self._tables)
        grids = {name: _Grid(table) for name, table in self._tables.items() if table.ndim == 2}
        self._block = SimpleNamespace(**self._numbers | self._tables | grids)
        self._torch: dict[Any, SimpleNamespace] = {}
        self._ends: dict[str, tuple[int, int]] | None = None  # least and greatest entry of each table

    @property
    def per_sequence(self) -> bool:
        return self.sequences is not None

    def by(self, formula: Callable) -> Bound:
        """Another formula (of the same kind as ``predicate`` in a mask's file) on the same sizes, parameters
        and tables."""
        return Bound(self.mask, self.seq_q, self.seq_k, self.values, self._given, formula, self.sequences)

    def predicate(self, q_pos, k_pos, batch=None):
        """True where the query at position q_pos sees the key at k_pos; q_pos = row + offset.

        q_pos, k_pos: integers, NumPy arrays or torch tensors (also the batched scalars inside torch.vmap)
        that broadcast. batch: which sequence, of the same kind; needed only where the mask differs among
        several sequences.
        """
        if (
            hasattr(q_pos, "device")
            and "torch" in sys.modules
            and isinstance(q_pos, sys.modules["torch"].Tensor)
        ):
            return self._formula(q_pos, k_pos, self._on(q_pos.device), self._sequence(batch))
        return self._formula(np.asarray(q_pos), np.asarray(k_pos), self._numpy, self._sequence(batch))

    def on_tiles(self, q_tiles, k_tiles, batch) -> bounds.Flags:
        """Which tiles may and which must be kept, by the formula evaluated on bounds: all three are
        ``bounds.Spans``, of positions and of the sequence, of NumPy arrays or of torch tensors.

        Raises TypeError (``bounds.Unbounded``) or AttributeError where the formula does what bounds have no
        operator for.
        """
        if self._ends is None:
            kinds = {
                name: table for name, table in self._tables.items() if table.dtype.kind in "bi" and table.size
            }
            self._ends = {name: (int(table.min()), int(table.max())) for name, table in kinds.items()}
        on_numpy = isinstance(q_tiles.low, np.ndarray)
        arrays = self._tables if on_numpy else vars(self._on(q_tiles.low.device))
        tables = {name: bounds.Table(arrays[name], ends) for name, ends in self._ends.items()}
        p = SimpleNamespace(**self._numbers | tables)
        kept = self._formula(q_tiles, k_tiles, p, batch if self.per_sequence else 0)
        if not isinstance(kept, bounds.Flags):
            raise bounds.Unbounded(f"the formula of {self.mask} gives {type(kept).__name__} of bounds")
        return kept

    def mask_mod(self, device):
        """FlexAttention's mask_mod(b, h, q_idx, kv_idx), in row numbers; tables are captured as tensors on
        the device."""
        p, formula, offset, per_sequence = (
            self._on(sys.modules["torch"].device(device)),
            self._formula,
            self.offset,
            self.per_sequence,
        )

        def mask_mod(b, h, q_idx, kv_idx):
            return formula(q_idx + offset, kv_idx, p, b if per_sequence else 0)

        return mask_mod

    def block(self, first: int, last: int) -> np.ndarray:
        """Rows first … last−1 of the dense mask: bool (rows, seq_k), or (batch, rows, seq_k)."""
        shape = ((self.sequences,) if self.per_sequence else ()) + (last - first, self.seq_k)
        out = np.empty(shape, bool)
        q = np.arange(first + self.offset, last + self.offset, dtype=np.int32)[:, None]
        k = np.arange(self.seq_k, dtype=np.int32)[None, :]
        step = max(1, _PIECE // self.seq_k)
        for sequence in range(self.sequences or 1):
            target = out[sequence] if self.per_sequence else out
            for row in range(0, last - first, step):
                target[row : row + step] = self._formula(q[row : row + step], k, self._block, sequence)
        return out

    def dense(self) -> np.ndarray:
        """The whole matrix: bool (seq_q, seq_k), or (batch, seq_q, seq_k) where the mask differs per
        sequence."""
        if self.seq_q * self.seq_k <= 1 << 22:
            return self.block(0, self.seq_q)
        out = np.empty(((self.sequences,) if self.per_sequence else ()) + (self.seq_q, self.seq_k), bool)

        def fill(first: int, last: int, rows: np.ndarray) -> None:
            out[..., first:last, :] = rows

        self.each_rows(max(1, (1 << 22) // self.seq_k), fill)
        return out

    def each_rows(self, step: int, visit: Callable[[int, int, np.ndarray], None]) -> None:
        """Call visit(first, last, rows) for every ``step`` rows, from a few threads and in any order (NumPy
        frees the lock)."""
        ranges = [(first, min(first + step, self.seq_q)) for first in range(0, self.seq_q, step)]
        with ThreadPoolExecutor(min(8, len(os.sched_getaffinity(0)), len(ranges))) as pool:
            list(pool.map(lambda r: visit(*r, self.block(*r)), ranges))

    def _sequence(self, batch):
        if not self.per_sequence:
            return 0
        if batch is None:
            if self.sequences > 1:
                raise ValueError(
                    f"{self.mask} differs among {self.sequences} sequences: predicate needs batch, the "
                    "index of the sequence"
                )
            return 0
        return batch

    def _on(self, device) -> SimpleNamespace:
        """Parameters and tables for torch indices on the device; tables are copied there once."""
        if device not in self._torch:
            torch = sys.modules["torch"]
            tables = {name: torch.tensor(table, device=device) for name, table in self._tables.items()}
            p = SimpleNamespace(**self._numbers | tables)
            if any(type(t) is not torch.Tensor for t in tables.values()):
                return p  # made while tracing with fake tensors: good for this trace only
            self._torch[device] = p
        return self._torch[device]
