"""From a mask to 64 × 64 tiles, by torch operations on the device and in pieces, so that memory stays
bounded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

TILE = 64
_PIECE = 1 << 22  # elements evaluated at once: temporaries of int64 are then 32 MiB each
_PIECE_CUDA = 1 << 24  # on a GPU, where a piece costs two synchronisations: 128 MiB each
_COLUMNS = 1 << 16  # columns of a piece at most, so that one tile row of 2^20 keys stays bounded too


def evaluate(
    bound,
    sequence: int,
    rows: tuple[int, int],
    columns: tuple[int, int],
    device,
    moduli: tuple[int, int] = (1, 1),
):
    """Part of a bound mask as a bool tensor (rows, columns) on the device; rows and columns are half-open
    ranges of places.

    moduli: of rows and of columns; places are in strided-permuted order modulo them (see ``ordered``), with 1
    they are indices.
    """
    import torch

    if torch.device(device).type == "cpu":
        return torch.from_numpy(_evaluate_numpy(bound, sequence, rows, columns, moduli))
    return _evaluate_torch(bound, sequence, rows, columns, device, moduli)


def ordered(places, modulus: int, size: int):
    """The indices at these places of 0 … size − 1 in strided-permuted order: 0, m, 2m, …, 1, m + 1, …;
    modulus divides size."""
    length = size // modulus
    return places if modulus == 1 else places % length * modulus + places // length


def _evaluate_torch(
    bound, sequence: int, rows: tuple[int, int], columns: tuple[int, int], device, moduli=(1, 1)
):
    import torch

    q = torch.arange(*rows, device=device, dtype=torch.int32)[:, None]
    k = torch.arange(*columns, device=device, dtype=torch.int32)[None, :]
    q, k = ordered(q, moduli[0], bound.seq_q) + bound.offset, ordered(k, moduli[1], bound.seq_k)
    batch = torch.tensor(sequence, device=device) if bound.per_sequence else None
    keep = bound.predicate(q, k, batch)
    return torch.as_tensor(keep, device=device).broadcast_to(rows[1] - rows[0], columns[1] - columns[0])


def _evaluate_numpy(bound, sequence: int, rows: tuple[int, int], columns: tuple[int, int], moduli):
    """The same on the CPU: NumPy on 32-bit indices, in pieces whose temporaries stay in the cache, is several
    times faster there."""
    q = ordered(np.arange(*rows, dtype=np.int32)[:, None], moduli[0], bound.seq_q) + bound.offset
    k = ordered(np.arange(*columns, dtype=np.int32)[None, :], moduli[1], bound.seq_k)
    out = np.empty((q.shape[0], k.shape[1]), bool)
    step = max(1, (1 << 18) // k.shape[1])
    for row in range(0, q.shape[0], step):
        out[row : row + step] = bound.predicate(q[row : row + step], k, sequence)
    return out


def row_steps(seq_q: int, seq_k: int, device_type: str = "cpu") -> Iterator[tuple[int, int]]:
    """Ranges of whole tile rows, of about a piece each; a single tile row where it has more elements than
    that."""
    step = max(TILE, (_PIECE_CUDA if device_type == "cuda" else _PIECE) // seq_k // TILE * TILE)
    for first in range(0, seq_q, step):
        yield first, min(first + step, seq_q)


def column_steps(seq_k: int) -> Iterator[tuple[int, int]]:
    """Ranges of whole tile columns; more than one only where a tile row alone fills a piece, so order stays
    row by row."""
    for first in range(0, seq_k, _COLUMNS):
        yield first, min(first + _COLUMNS, seq_k)


def tiles_of(keep):
    """Live elements per tile (int32, tile rows × tile columns), full (bool, likewise), and the words (partial
    tiles, 64) in row order.

    keep: bool (rows, columns); tiles at the edges are full when all of their elements inside are live. Bit c
    of a word is column c of the tile; bits outside are 0.
    """
    import torch

    rows, columns = keep.shape
    tile_rows, tile_columns = -(-rows // TILE), -(-columns // TILE)
    if rows % TILE or columns % TILE:
        keep = torch.nn.functional.pad(keep, (0, tile_columns * TILE - columns, 0, tile_rows * TILE - rows))
    per_column = (
        keep.view(torch.uint8).reshape(tile_rows, TILE, tile_columns * TILE).sum(1, dtype=torch.uint8)
    )  # at most 64
    live = per_column.view(tile_rows, tile_columns, TILE).sum(2, dtype=torch.int32)
    full = (
        live
        == rows_inside(rows, tile_rows, keep.device)[:, None]
        * rows_inside(columns, tile_columns, keep.device)[None, :]
    )
    at = ((live > 0) & ~full).nonzero()
    partial = keep.reshape(tile_rows, TILE, tile_columns, TILE)[at[:, 0], :, at[:, 1], :]
    return live, full, pack(partial)


def pack(squares):
    """int64 words (n, 64) of bool (n, 64, 64): bit c of a word is column c."""
    import torch

    if squares.device.type == "cpu":
        return torch.from_numpy(
            np.packbits(squares.numpy(), axis=-1, bitorder="little").view("<i8")[..., 0].astype(np.int64)
        )
    return _pack_torch(squares)


def _pack_torch(squares):
    import torch

    weights = torch.ones((), dtype=torch.int64, device=squares.device) << torch.arange(
        TILE, device=squares.device
    )
    return torch.where(squares, weights, 0).sum(
        -1
    )  # bit 63 is the sign; single bits never carry into one another


def unpack(words):
    """Bool (n, 64, 64) of words (n, 64): the inverse of ``pack``."""
    import torch

    return (words[:, :, None] >> torch.arange(TILE, device=words.device)) & 1 == 1


def unique_rows(words):
    """(distinct rows, index of each row among them) of an int64 matrix (n, 64)."""
    first, index = groups(words)
    return words[first], index


def groups(rows):
    """(first row of each group, group of each row) of equal rows of an integer matrix, a torch tensor or a
    NumPy array.

    Sorting rows of many words is slow, so they are grouped by a 64-bit hash; the groups are then compared
    word for word; on a collision all words are sorted.
    """
    import torch

    generator = torch.Generator().manual_seed(1)
    factors = torch.randint(-(1 << 62), 1 << 62, (2, max(TILE, rows.shape[1])), generator=generator) * 2 + 1
    factors = factors[:, : rows.shape[1]]
    if isinstance(rows, np.ndarray):
        digest = _digest(rows, factors.numpy())
        _, first, index = np.unique(digest, return_index=True, return_inverse=True)
        if not (rows[first][index] == rows).all():
            _, first, index = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        return first, index.reshape(-1)
    found, index = torch.unique(_digest(rows, factors.to(rows.device)), return_inverse=True)
    first = _first_of(index, len(found))
    if not bool((rows[first][index] == rows).all()):
        found, index = torch.unique(rows, dim=0, return_inverse=True)
        first = _first_of(index, len(found))
    return first, index


def _digest(rows, factors):
    mixed = (rows ^ (rows >> 31)) * factors[0]
    return ((mixed ^ (mixed >> 29)) * factors[1]).sum(-1)


def _first_of(index, count: int):
    import torch

    first = torch.full((count,), index.numel(), device=index.device)
    return first.scatter_reduce_(0, index, torch.arange(index.numel(), device=index.device), "amin")


def rows_inside(length: int, tiles: int, device):
    """How many rows (or columns) of each tile lie inside."""
    import torch

    return (length - TILE * torch.arange(tiles, device=device, dtype=torch.int32)).clamp(max=TILE)
