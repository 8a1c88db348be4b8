"""Tile lists from a formula's bounds (masks/common/bounds.py): the work grows with live tiles, not with seq_q
× seq_k.

Squares of tiles that may be kept but need not be are divided until they are single tiles. Of those that are
left, tiles with equal keys are equal: one of each kind is evaluated element by element. Everything is done on
whole pieces, whose sizes bound the memory besides the lists themselves, and nothing tile by tile: by torch on
a GPU, in few launches; by NumPy on the CPU, where torch would wait for a second thread, on a busy machine
long.

Squares are int64 (n, 3): sequence, row and column, the last two counted in squares of that side.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusescope.masks.common.bounds import Flags, Spans, library
from fusescope.masks.common.strided_bounds import in_order
from fusescope.ops.attention.plan import tiles

_DEAD = -2  # the code of a tile without a live element
_FACTOR = 16  # into so many squares, on each side, a larger one is divided
# By library: temporaries that stay in the cache on a CPU, few launches on a GPU.
_FIRST = {"numpy": 1 << 12, "torch": 1 << 18}  # squares to begin with, at most
_PIECE = {"numpy": 1 << 15, "torch": 1 << 20}  # squares looked at together
_EVALUATED = {"numpy": 1 << 5, "torch": 1 << 12}  # tiles evaluated together; so few are not compared by keys


def tile_lists(bound, device, by_numpy: bool | None = None, moduli: tuple[int, int] = (1, 1)):
    """((row_ptr, tile_index, tile_code, bitmaps), live elements, full tiles, partial tiles, longest list) of
    a bound mask on a torch device: bit for bit what evaluating every element gives. by_numpy: None on a CPU.
    moduli: of rows and of columns, whose places are in strided-permuted order modulo them (tiles.ordered).

    Raises TypeError or AttributeError where its formula cannot be bounded.
    """
    import torch

    by_numpy = device.type == "cpu" if by_numpy is None else by_numpy
    sequences, rows, columns = _grid(bound)
    roots = torch.zeros(sequences, 3, dtype=torch.int64, device=device)
    roots[:, 0] = torch.arange(sequences, device=device)
    full, unclear = _divided(bound, moduli, roots.numpy() if by_numpy else roots)
    full_at, unclear_at = ((s[:, 0] * rows + s[:, 1]) * columns + s[:, 2] for s in (full, unclear))
    order = unclear_at.argsort()
    words, live, size, kind = _kinds(bound, moduli, unclear[order])
    partial = (live > 0) & (live < size)
    bitmaps, number = tiles.unique_rows(words[torch.as_tensor(partial)])
    code = library(live).where(live > 0, -1, _DEAD)
    code[partial] = number if library(live) is torch else number.numpy()
    code = code[kind]
    elements = live[kind].sum() + _inside(bound, full).sum()
    kept = code > _DEAD
    lists, whole, longest = _in_order(full_at, unclear_at[order][kept], code[kept], sequences * rows, columns)
    figures = [torch.as_tensor(each) for each in (elements, whole, longest)]
    elements, whole, longest = torch.stack(figures).tolist()
    return (*lists, bitmaps.contiguous()), elements, whole, lists[1].numel() - whole, longest


def _grid(bound) -> tuple[int, int, int]:
    """Sequences, tile rows and tile columns."""
    return bound.sequences or 1, -(-bound.seq_q // tiles.TILE), -(-bound.seq_k // tiles.TILE)


def _in_order(full, others, code, rows: int, columns: int):
    """((row_ptr, tile_index, tile_code), full tiles, longest list) of the numbers of full tiles and of others
    that have these codes."""
    import torch

    xp = library(full)
    at = xp.concatenate([2 * full, 2 * others + 1])  # the lowest bit says which of the two
    at = np.sort(at) if xp is np else at.msort()
    if len(at) >= 1 << 31:
        raise ValueError(f"a plan holds fewer than 2^31 live tiles, this mask has {len(at)}")
    tile_code = xp.full_like(at, -1)
    tile_code[(at & 1) == 1] = code
    at = at >> 1
    row_ptr = xp.searchsorted(at, _range(rows + 1, full) * columns)
    lists = [torch.as_tensor(_as(each, "int32")) for each in (row_ptr, at % columns, tile_code)]
    return lists, (tile_code < 0).sum(), xp.diff(row_ptr).max()


def _divided(bound, moduli, unclear):
    """(full tiles, those that bounds leave unclear) of the squares with all tiles of a sequence."""
    xp, (sequences, rows, columns) = library(unclear), _grid(bound)
    side, first = 1, _FIRST[xp.__name__]
    while sequences * -(-rows // side) * -(-columns // side) > first and side < max(rows, columns):
        side *= _FACTOR
    full, factors = [unclear[:0]], (-(-rows // side), -(-columns // side))
    while side:
        left = [unclear[:0]]
        for some, squares in _smaller(unclear, factors, _PIECE[xp.__name__]):
            kept = _look(bound, moduli, side, *squares)
            inside = (squares[1] * side < rows) & (squares[2] * side < columns)
            left.append(_those((kept.may & ~kept.must) & inside, some, factors))
            full.append(_tiles_inside(_those(kept.must & inside, some, factors), side, rows, columns))
        unclear, factors, side = xp.concatenate(left), (_FACTOR, _FACTOR), side // _FACTOR
    return xp.concatenate(full), unclear


def _smaller(squares, factors: tuple[int, int], most: int) -> Iterator[tuple]:
    """(squares, (sequence, row, column) of what they are divided into, factors[0] × factors[1] each, int32
    and broadcasting to (n, factors)), so that there are about ``most`` at a time."""
    steps = [_range(factor, squares, "int32") for factor in factors]
    for some in _split(squares, max(1, most // (factors[0] * factors[1]))):
        sequence, row, column = _as(some.T, "int32")[..., None, None]
        yield some, (sequence, row * factors[0] + steps[0][:, None], column * factors[1] + steps[1])


def _those(flags, squares, factors: tuple[int, int]):
    """The smaller squares for which a flag is set, bool (n, factors)."""
    xp = library(squares)
    flags = xp.broadcast_to(flags, (len(squares), *factors))
    number, row, column = np.nonzero(flags) if xp is np else flags.nonzero(as_tuple=True)
    of = squares[number]
    return xp.stack([of[:, 0], of[:, 1] * factors[0] + row, of[:, 2] * factors[1] + column], 1)


def _tiles_inside(squares, side: int, rows: int, columns: int):
    """The tiles of squares that lie inside the mask."""
    if side == 1:
        return squares
    xp, made = library(squares), [squares[:0]]
    for some, (_, row, column) in _smaller(squares, (side, side), _PIECE["torch"]):
        made.append(_those((row < rows) & (column < columns), some, (side, side)))
    return xp.concatenate(made)


def _look(bound, moduli, side: int, sequence, row, column, keys: bool = False) -> Flags:
    """What bounds say of squares of side × side tiles; with keys, of which those of tiles that are cut off at
    the edges differ from others'."""
    edge, most = side * tiles.TILE, bound.seq_q + bound.seq_k
    spans, sizes = [], ()
    ends = ((row, bound.seq_q, bound.offset), (column, bound.seq_k, 0))
    for (place, size, offset), modulus in zip(ends, moduli):
        first = (place * edge).clip(max=size - 1)
        last = (place * edge + edge).clip(max=size) - 1
        sizes += (last - first,) if keys else ()
        if modulus == 1:
            first, last = first + offset, last + offset
        span = Spans(first, last, most, first if keys else None)
        spans.append(span if modulus == 1 else in_order(span, modulus, size) + offset)
    found = bound.on_tiles(*spans, Spans(sequence, sequence, most, sequence if keys else None))
    if keys:
        found.keys += sizes
    return found


def _kinds(bound, moduli, unclear):
    """(words, live elements, elements inside the mask) of the different tiles among these, and of which kind
    each is: a tensor int64 (kinds, 64), then (kinds,), (kinds,), (n,). Two kinds may still be equal."""
    import torch

    xp, count = library(unclear), 0
    words, live, size, kind = [], [], [], []
    for some in _split(unclear, _PIECE[xp.__name__]) or [unclear]:
        first = which = _range(len(some), some)
        if len(some) > _EVALUATED[xp.__name__]:
            keys = _look(bound, moduli, 1, *_as(some.T, "int32"), keys=True).keys
            first, which = tiles.groups(xp.stack([xp.broadcast_to(k, (len(some),)) for k in keys], 1))
        chosen = some[first]
        for piece in _split(chosen, _EVALUATED[xp.__name__]):
            squares = _elements(bound, moduli, *_as(piece.T, "int32"))
            words.append(tiles.pack(torch.as_tensor(squares)))
            live.append(squares.sum((1, 2)))
        size.append(_inside(bound, chosen))
        kind.append(which + count)
        count += len(first)
    words = words or [torch.zeros(0, tiles.TILE, dtype=torch.int64, device=size[0].device)]
    return torch.cat(words), *map(xp.concatenate, (live or [size[0]], size, kind))


def _inside(bound, squares):
    """How many elements of tiles lie inside the mask."""
    height = (bound.seq_q - tiles.TILE * squares[:, 1]).clip(max=tiles.TILE)
    return height * (bound.seq_k - tiles.TILE * squares[:, 2]).clip(max=tiles.TILE)


def _elements(bound, moduli, sequence, row, column):
    """bool (n, 64, 64): tiles, int32 each, evaluated element by element, False outside the mask."""
    step = _range(tiles.TILE, row, "int32")
    q = row[:, None, None] * tiles.TILE + step[:, None]
    k = column[:, None, None] * tiles.TILE + step
    inside = (q < bound.seq_q) & (k < bound.seq_k)
    q, k = q.clip(max=bound.seq_q - 1), k.clip(max=bound.seq_k - 1)
    q, k = tiles.ordered(q, moduli[0], bound.seq_q) + bound.offset, tiles.ordered(k, moduli[1], bound.seq_k)
    return bound.predicate(q, k, sequence[:, None, None] if bound.per_sequence else None) & inside


def _range(count: int, like, dtype: str = "int64"):
    """0 … count − 1, of the library and on the device of an array."""
    xp, there = library(like), {} if library(like) is np else {"device": like.device}
    return xp.arange(count, dtype=getattr(xp, dtype), **there)


def _split(array, size: int) -> list:
    """At most so many rows each."""
    return [array[first : first + size] for first in range(0, len(array), size)]


def _as(array, dtype: str):
    return array.astype(dtype) if library(array) is np else array.to(getattr(library(array), dtype))
