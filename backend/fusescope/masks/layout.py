"""How a mask falls into tiles: live, full and partial ones, their lists and bitmaps, and what each format
costs to store.

Everything works through strips of rows; no matrix of seq_q × seq_k elements is made. Tile (i, j) covers rows
i·tile … and keys j·tile …, counted from row 0 and key 0; tiles at the lower and right edge may be smaller.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusescope.core.schema import check_int
from fusescope.masks.common.bound import Bound
from fusescope.masks.common.mask import Mask

_STRIP = 1 << 22  # elements looked at together


@dataclass(frozen=True)
class Tiles:
    """A mask cut into tiles. With a mask per sequence the arrays have the sequences as first dimension.

    counts: int32 (tile rows, tile columns), kept elements; sizes: the same shape without sequences, elements
    there are; row_counts: int32 (seq_q,), live keys of each query.
    """

    tile: int
    seq_q: int
    seq_k: int
    counts: np.ndarray
    sizes: np.ndarray
    row_counts: np.ndarray

    @property
    def live_map(self) -> np.ndarray:
        """bool, like counts: tiles with at least one kept element."""
        return self.counts > 0

    @property
    def full_map(self) -> np.ndarray:
        """bool, like counts: tiles that are kept entirely."""
        return self.counts == self.sizes

    @property
    def total(self) -> int:
        return self.counts.size

    @property
    def live(self) -> int:
        return int(np.count_nonzero(self.counts))

    @property
    def full(self) -> int:
        return int(np.count_nonzero(self.full_map))

    @property
    def partial(self) -> int:
        return self.live - self.full

    @property
    def kept(self) -> int:
        """Kept elements of the whole mask."""
        return int(self.row_counts.sum(dtype=np.int64))

    @property
    def elements(self) -> int:
        """Elements of the whole mask, all sequences together."""
        return self.row_counts.size * self.seq_k

    @property
    def density(self) -> float:
        """Share of elements kept."""
        return self.kept / self.elements

    @property
    def live_share(self) -> float:
        """Share of tiles that are live: what a kernel that skips tiles still works on."""
        return self.live / self.total

    @property
    def executed(self) -> int:
        """Elements inside live tiles: what a kernel that skips tiles computes."""
        return int(np.where(self.live_map, self.sizes, 0).sum(dtype=np.int64))

    @property
    def imbalance(self) -> float:
        """Live tiles of the heaviest tile row over their mean; 1 is perfectly even, 0 an empty mask."""
        per_row = self.live_map.sum(axis=-1)
        return float(per_row.max() / per_row.mean()) if per_row.any() else 0.0

    def coarser(self, factor: int) -> Tiles:
        """The same mask in tiles of ``factor`` times the side, without looking at it again. ValueError for
        less than 1."""
        factor = check_int("factor", factor, 1)
        counts, sizes = (_merged(_merged(a, factor, -2), factor, -1) for a in (self.counts, self.sizes))
        return Tiles(self.tile * factor, self.seq_q, self.seq_k, counts, sizes, self.row_counts)

    def lists(self) -> list[TileList]:
        """The live tiles of each tile row, as CSR over tiles; one list per sequence, or one where all
        are alike."""
        maps = self.counts if self.counts.ndim == 3 else self.counts[None]
        return [TileList.of(counts, self.sizes) for counts in maps]


@dataclass(frozen=True)
class TileList:
    """Live tiles row by row: those of tile row i are columns[offsets[i]:offsets[i+1]], ascending; full says
    which are full.

    offsets: int32 (tile rows + 1,); columns: int32 (live,); full: bool (live,).
    """

    offsets: np.ndarray
    columns: np.ndarray
    full: np.ndarray

    @classmethod
    def of(cls, counts: np.ndarray, sizes: np.ndarray) -> TileList:
        rows, columns = np.nonzero(counts)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(counts)))])
        return cls(offsets.astype(np.int32), columns.astype(np.int32), (counts == sizes)[rows, columns])


def tiles(mask: Mask | Bound, seq_q: int | None = None, seq_k: int | None = None, tile: int = 64) -> Tiles:
    """Cut a mask on seq_q × seq_k into square tiles. ``mask`` may be bound already (then without sizes).

    Raises ValueError for a tile side outside 1 … 65535, and what ``Mask.bind`` raises.
    """
    bound = _bound(mask, seq_q, seq_k)
    tile = check_int("tile", tile, 1, 65535)
    lead = (bound.sequences,) if bound.per_sequence else ()
    rows, columns = -(-bound.seq_q // tile), -(-bound.seq_k // tile)
    counts = np.empty((*lead, rows, columns), np.int32)
    row_counts = np.empty((*lead, bound.seq_q), np.int32)
    starts = np.arange(0, bound.seq_k, tile)
    narrow = np.uint8 if tile < 256 else np.uint16  # no column of a tile counts more than its side

    def count(first: int, last: int, kept: np.ndarray) -> None:
        for index in np.ndindex(lead):
            strip = kept[index]
            for row in range(last - first):
                row_counts[(*index, first + row)] = np.count_nonzero(strip[row])
            for top in range(0, last - first, tile):
                per_key = strip[top : top + tile].view(np.uint8).sum(axis=0, dtype=narrow)
                counts[(*index, (first + top) // tile)] = np.add.reduceat(per_key, starts, dtype=np.int32)

    bound.each_rows(max(1, _STRIP // (tile * bound.seq_k * (bound.sequences or 1))) * tile, count)
    height = np.minimum(tile, bound.seq_q - np.arange(rows) * tile)
    width = np.minimum(tile, bound.seq_k - starts)
    return Tiles(
        int(tile), bound.seq_q, bound.seq_k, counts, np.outer(height, width).astype(np.int32), row_counts
    )


@dataclass(frozen=True)
class Bitmaps:
    """The kept elements of partial tiles, identical bitmaps stored once.

    words: uint8 (distinct, tile, ceil(tile / 8)), bit c mod 8 of byte c // 8 is key c of the tile (outside
    the mask: 0); which: int32, one a partial tile, in the order of sequences, tile rows and tile columns.
    """

    words: np.ndarray
    which: np.ndarray


def bitmaps(
    mask: Mask | Bound, seq_q: int | None = None, seq_k: int | None = None, tile: int = 64
) -> Bitmaps:
    """Bitmaps of the partial tiles of a mask; arguments and errors as for ``tiles``."""
    bound = _bound(mask, seq_q, seq_k)
    cut = tiles(bound, tile=tile)
    partial = cut.live_map & ~cut.full_map
    columns = cut.counts.shape[-1]
    known: dict[bytes, int] = {}
    which: dict[tuple[int, ...], list[int]] = {}
    for i in range(cut.counts.shape[-2]):
        if not partial[..., i, :].any():
            continue
        kept = bound.block(i * tile, min((i + 1) * tile, bound.seq_q))
        for index in np.ndindex(partial.shape[:-2]):
            strip = np.zeros((tile, columns * tile), bool)
            strip[: kept.shape[-2], : bound.seq_k] = kept[index]
            packed = np.packbits(strip.reshape(tile, columns, tile), axis=2, bitorder="little").transpose(
                1, 0, 2
            )
            chosen = packed[partial[(*index, i)]]
            which[(*index, i)] = [known.setdefault(square.tobytes(), len(known)) for square in chosen]
    words = np.frombuffer(b"".join(known), np.uint8).reshape(len(known), tile, -(-tile // 8))
    order = [number for key in sorted(which) for number in which[key]]
    return Bitmaps(words, np.asarray(order, np.int32))


def storage(cut: Tiles) -> dict[str, int]:
    """Bytes that the pattern (no values) takes in each format, indices as int32 (int64 where there are 2^31
    or more).

    dense: a byte an element. bitmap: a bit an element, rows padded to bytes. coo: row and column of each kept
    element. csr: column of each and where each row starts. bsr: column of each live tile, where each tile row
    starts, and the tiles as bytes. tiles: the same lists, but a flag a tile and a bitmap only for partial
    ones (identical ones not merged).
    """
    sequences = cut.row_counts.size // cut.seq_q
    index = 8 if max(cut.kept, cut.live) >= 1 << 31 else 4
    lists = index * (cut.live + sequences * (cut.counts.shape[-2] + 1))
    return {
        "dense": cut.elements,
        "bitmap": sequences * cut.seq_q * -(-cut.seq_k // 8),
        "coo": 2 * index * cut.kept,
        "csr": index * (cut.kept + sequences * (cut.seq_q + 1)),
        "bsr": lists + cut.live * cut.tile**2,
        "tiles": lists + cut.live + cut.partial * cut.tile * -(-cut.tile // 8),
    }


def break_even(cut: Tiles, against: str = "dense") -> dict[str, float]:
    """Up to which share each list format takes no more bytes than "dense" or "bitmap" (as ``storage`` counts
    them), 0 … 1.

    coo and csr: share of elements kept. bsr and tiles: share of tiles live, every one of them partial. 0:
    never.
    """
    whole, index = storage(cut), 8 if max(cut.kept, cut.live) >= 1 << 31 else 4
    sequences = cut.row_counts.size // cut.seq_q
    rows, tile_rows = index * sequences * (cut.seq_q + 1), index * sequences * (cut.counts.shape[-2] + 1)
    each = {
        "coo": (0, 2 * index, cut.elements),
        "csr": (rows, index, cut.elements),
        "bsr": (tile_rows, index + cut.tile**2, cut.total),
        "tiles": (tile_rows, index + 1 + cut.tile * -(-cut.tile // 8), cut.total),
    }
    return {
        name: min(1.0, max(0.0, (whole[against] - fixed) / (one * most)))
        for name, (fixed, one, most) in each.items()
    }


def _merged(counts: np.ndarray, factor: int, axis: int) -> np.ndarray:
    return np.add.reduceat(counts, np.arange(0, counts.shape[axis], factor), axis=axis, dtype=np.int32)


def _bound(mask: Mask | Bound, seq_q: int | None, seq_k: int | None) -> Bound:
    if isinstance(mask, Bound):
        return mask
    if seq_q is None:
        raise ValueError("a mask that is not bound needs seq_q (and seq_k where it differs)")
    return mask.bind(seq_q, seq_k)
