"""What a mask sums up to: kept elements, and those of the tiles that are live.

A formula in the operators of common/bounds.py says of most squares at once that all or none of their elements
are kept; only tiles that it leaves unclear are looked at element by element. So the work grows with the edges
of what is kept, not with seq_q × seq_k.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fusescope import masks
from fusescope.core.schema import check_int
from fusescope.masks import layout
from fusescope.masks.common.bound import Bound
from fusescope.masks.common.bounds import Flags, Spans
from fusescope.masks.common.mask import Mask

_QUICK = 1 << 30  # elements looked at one by one: some 8 s
_QUARTERS = np.array([(0, 0), (0, 1), (1, 0), (1, 1)], np.int32)
_PIECE = 1 << 18  # squares, or elements, looked at together: temporaries of 1 MB stay in the cache


@dataclass(frozen=True)
class Counts:
    """Sums over a mask, all its sequences together: kept elements, elements inside live tiles, elements there
    are, and live tiles; the fewest kept keys of a query with any, and the most; live tiles of the tile row
    with most."""

    kept: int
    executed: int
    elements: int
    live: int
    fewest: int
    longest: int
    longest_in_tiles: int

    @classmethod
    def of(cls, per_query: np.ndarray, per_tile_row: np.ndarray, executed: int, elements: int) -> Counts:
        """From kept keys of each query and live tiles of each tile row."""
        some = per_query[per_query > 0]
        kept, live = (int(each.sum(dtype=np.int64)) for each in (per_query, per_tile_row))
        fewest = int(some.min()) if some.size else 0
        return cls(kept, executed, elements, live, fewest, int(per_query.max()), int(per_tile_row.max()))


def counts(mask: Mask, seq_q: int, seq_k: int, tile: int = 64) -> Counts:
    """The sums that ``layout.tiles`` gives. Raises ValueError as that does."""
    tile = check_int("tile", tile, 1, 65535)
    divided = _divided(mask, seq_q, seq_k, tile)
    if divided is None:
        cut = layout.tiles(mask, seq_q, seq_k, tile)
        return Counts.of(cut.row_counts, cut.live_map.sum(axis=-1), cut.executed, cut.elements)
    (top, bottom, width), unclear = divided.full, divided.unclear
    queries = _spread(seq_q, top, bottom, width)
    tile_rows = _spread(-(-seq_q // tile), top // tile, -(-bottom // tile), -(-width // tile))
    executed, together = int(((bottom - top) * width).sum()), max(1, _PIECE // tile**2)
    for first in range(0, len(unclear), together):
        some = unclear[first : first + together]
        rows, kept, size = _evaluated(divided.bound, some, tile)
        per_row = np.count_nonzero(kept, axis=2)
        live = per_row.any(axis=1)
        np.add.at(queries, rows, per_row)
        np.add.at(tile_rows, some[live, 0], 1)
        executed += int(size[live].sum())
    return Counts.of(queries, tile_rows, executed, seq_q * seq_k)


def quick(mask: Mask, seq_q: int, seq_k: int) -> bool:
    """Whether ``counts`` takes seconds: a page does not wait for more."""
    if seq_q * seq_k * (mask.sequences or 1) <= _QUICK:
        return True
    return _divided(mask, seq_q, seq_k, 64) is not None


def countable(case: Mapping[str, Any]) -> bool:
    """Whether the work of a case of any operator is counted in seconds: it has no mask, or one that is quick
    at its lengths."""
    if "mask" not in case or "seq" not in case:
        return True
    return quick(masks.parse(str(case["mask"])), int(case["seq"]), int(case.get("seq_k") or case["seq"]))


@dataclass(frozen=True)
class _Divided:
    """Squares of a bound mask. full: int64 (3, n), first row, the one after the last, and columns of those
    that are kept entirely; unclear: int32 (n, 2), row and column in tiles of those that bounds leave open."""

    bound: Bound
    full: np.ndarray
    unclear: np.ndarray


def _divided(mask: Mask, seq_q: int, seq_k: int, tile: int) -> _Divided | None:
    """None where it has no formula alone, or one that leaves more than _QUICK elements to be looked at."""
    if not mask.is_formula:
        return None
    bound, side = mask.bind(seq_q, seq_k), tile
    while side < max(seq_q, seq_k):
        side *= 2
    squares, full = np.zeros((1, 2), np.int32), []
    while True:
        left = []
        for first in range(0, len(squares), _PIECE):
            some = squares[first : first + _PIECE]
            try:
                kept = _look(bound, some, side)
            except (TypeError, AttributeError):
                return None
            (top, bottom), (begin, end) = _ends(bound, some[kept.must], side)
            full.append(np.stack([top, bottom, end - begin]).astype(np.int64))
            left.append(some[kept.may & ~kept.must])
        unclear = np.concatenate([np.zeros((0, 2), np.int32), *left])
        if len(unclear) * tile**2 > _QUICK:
            return None
        if side == tile:
            return _Divided(bound, np.concatenate(full, 1), unclear)
        side //= 2
        squares = (2 * unclear[:, None] + _QUARTERS).reshape(-1, 2)
        squares = squares[(squares * side < (seq_q, seq_k)).all(axis=1)]


def _look(bound: Bound, squares: np.ndarray, side: int) -> Flags:
    """What bounds say of squares: which may and which must be kept."""
    (top, bottom), (left, right) = _ends(bound, squares, side)
    most = bound.seq_q + bound.seq_k
    rows = Spans(top + bound.offset, bottom - 1 + bound.offset, most)
    return bound.on_tiles(rows, Spans(left, right - 1, most), None)


def _spread(size: int, first: np.ndarray, last: np.ndarray, value: np.ndarray) -> np.ndarray:
    """int64 (size,), the sums of values that each count from its first place up to before its last."""
    steps = np.zeros(size + 1, np.int64)
    np.add.at(steps, first, value)
    np.add.at(steps, last, -value)
    return np.cumsum(steps)[:-1]


def _ends(bound: Bound, squares: np.ndarray, side: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of rows and of columns of the squares: the first, and the one after the last."""
    sizes = bound.seq_q, bound.seq_k
    return [(at * side, np.minimum(at * side + side, size)) for at, size in zip(squares.T, sizes)]


def _evaluated(bound: Bound, squares: np.ndarray, tile: int):
    """(rows (n, tile), which elements are kept, bool (n, tile, tile), elements (n,)) of tiles; rows and
    columns beyond the mask are its last ones, of which nothing is kept."""
    (top, bottom), (left, right) = _ends(bound, squares, tile)
    step = np.arange(tile, dtype=np.int32)
    q, k = top[:, None] + step, left[:, None] + step
    inside = (q < bottom[:, None])[:, :, None] & (k < right[:, None])[:, None]
    q, k = np.minimum(q, bound.seq_q - 1), np.minimum(k, bound.seq_k - 1)
    kept = bound.predicate(q[:, :, None] + bound.offset, k[:, None])
    return q, kept & inside, (bottom - top).astype(np.int64) * (right - left)
