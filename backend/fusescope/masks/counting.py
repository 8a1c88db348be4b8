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
from fusescope.masks.common.bounds import Spans
from fusescope.masks.common.mask import Mask

_QUICK = 1 << 30  # elements looked at one by one: some 8 s
_PIECE = 1 << 18  # elements looked at together: temporaries that stay in the cache


@dataclass(frozen=True)
class Counts:
    """Sums over a mask, all its sequences together: kept elements, elements inside live tiles, elements there
    are, and the fewest kept keys of a query with any."""

    kept: int
    executed: int
    elements: int
    fewest: int


def counts(mask: Mask, seq_q: int, seq_k: int, tile: int = 64) -> Counts:
    """The sums that ``layout.tiles`` gives. Raises ValueError as that does."""
    tile = check_int("tile", tile, 1, 65535)
    divided = _divided(mask, seq_q, seq_k, tile)
    if divided is None:
        cut = layout.tiles(mask, seq_q, seq_k, tile)
        return Counts(cut.kept, cut.executed, cut.elements, _fewest(cut.row_counts))
    (top, bottom, width), unclear = divided.full, divided.unclear
    rows = np.zeros(seq_q + 1, np.int64)  # how many more a query keeps than the one before
    np.add.at(rows, top, width)
    np.add.at(rows, bottom, -width)
    rows = np.cumsum(rows)[:-1]
    executed = int(((bottom - top) * width).sum())
    together = max(1, _PIECE // tile**2)
    for first in range(0, len(unclear), together):
        q, kept, size = _evaluated(divided.bound, unclear[first : first + together], tile)
        per_row = np.count_nonzero(kept, axis=2)
        np.add.at(rows, q, per_row)
        executed += int(size[per_row.any(axis=1)].sum())
    return Counts(int(rows.sum()), executed, seq_q * seq_k, _fewest(rows))


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
        (top, bottom), (left, right) = _ends(bound, squares, side)
        spans = Spans(top + bound.offset, bottom - 1 + bound.offset, seq_q + seq_k)
        try:
            kept = bound.on_tiles(spans, Spans(left, right - 1, seq_q + seq_k), None)
        except (TypeError, AttributeError):
            return None
        full.append(np.stack([top, bottom, right - left])[:, kept.must].astype(np.int64))
        squares = squares[kept.may & ~kept.must]
        if len(squares) * tile**2 > _QUICK:
            return None
        if side == tile:
            return _Divided(bound, np.concatenate(full, 1), squares)
        side //= 2
        squares = (2 * squares[:, None] + np.array([(0, 0), (0, 1), (1, 0), (1, 1)], np.int32)).reshape(-1, 2)
        squares = squares[(squares[:, 0] * side < seq_q) & (squares[:, 1] * side < seq_k)]


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


def _fewest(kept: np.ndarray) -> int:
    some = kept[kept > 0]
    return int(some.min()) if some.size else 0
