"""The schedule: the tile lists of a plan as steps of two KV tiles that two neighbouring query tiles share
(cuda/attention/attention.cuh).

Only Hopper's kernels read it. It is made beforehand because merging two lists inside a kernel costs it
several microseconds per block.
"""

from __future__ import annotations

from fusescope.ops.attention.plan import tiles

_DEAD = -2  # in the table: a tile that a query tile does not need
_CELLS = 1 << 24  # of the (query tile, KV tile) table made at once


def build(row_ptr, tile_index, tile_code, bitmaps, masks: int, seq_q: int, seq_k: int):
    """(schedule, fragments) of tile lists.

    schedule: int32 (masks · pairs of query tiles, 1 + 2 steps, 4), steps those of the longest list. Entry 0
    holds the number of steps, 0, the end of the first query tile's steps and the begin of the second's; step
    s holds its two tiles in entry 1 + 2 s, the codes of the first query tile for both and those of the second
    in entry 2 + 2 s: −1 all live, else a row of fragments. Tiles that only the first query tile needs come
    first, those that only the second needs last; an odd number is padded with a tile that none needs. Where a
    query tile does not need a tile of a step, its code is that of an empty bitmap. fragments: int32
    (bitmaps, 128), bit i for what thread t keeps of element i of wgmma's 64 × 64 accumulator
    (hopper_wgmma.cuh). The last tile column has a bitmap wherever it reaches beyond seq_k, so that kernels
    need not look at seq_k.
    """
    import torch

    device = row_ptr.device
    q_tiles, k_tiles = -(-seq_q // tiles.TILE), -(-seq_k // tiles.TILE)
    pairs = -(-q_tiles // 2)
    code, bitmaps = edged(tile_index, tile_code, bitmaps, seq_k)
    nothing = bitmaps.shape[0]
    bitmaps = torch.cat([bitmaps, torch.zeros(1, tiles.TILE, dtype=torch.int64, device=device)])
    lengths = (row_ptr[1:] - row_ptr[:-1]).long()
    row = torch.arange(masks * q_tiles, device=device).repeat_interleave(lengths)
    row = (
        row // q_tiles * (2 * pairs) + row % q_tiles
    )  # an odd last query tile is paired with one that needs nothing
    parts, step = [], max(1, _CELLS // (2 * k_tiles))
    for first in range(0, masks * pairs, step):
        count = min(step, masks * pairs - first)
        inside = (row >= 2 * first) & (row < 2 * (first + count))
        table = torch.full((2 * count, k_tiles), _DEAD, dtype=torch.int32, device=device)
        table[row[inside] - 2 * first, tile_index[inside].long()] = code[inside]
        parts.append(_steps(table.view(count, 2, k_tiles), nothing))
    longest = max(part.shape[1] for part in parts)
    padded = [torch.nn.functional.pad(part, (0, 0, 0, longest - part.shape[1])) for part in parts]
    return torch.cat(padded).contiguous(), fragments(bitmaps)


def edged(tile_index, tile_code, bitmaps, seq_k: int):
    """(codes, bitmaps) with a bitmap for tiles of the last column that are all live but reach beyond
    seq_k."""
    import torch

    code, edge = tile_code.clone(), seq_k % tiles.TILE
    if edge:
        code[(tile_index == seq_k // tiles.TILE) & (tile_code == -1)] = bitmaps.shape[0]
        word = torch.full((1, tiles.TILE), (1 << edge) - 1, dtype=torch.int64, device=bitmaps.device)
        bitmaps = torch.cat([bitmaps, word])
    return code, bitmaps


def _steps(table, nothing: int):
    """Schedules of a table of codes (pairs, 2, KV tiles); nothing: the code of a tile that is not needed."""
    import torch

    needed = table != _DEAD
    table = torch.where(needed, table, nothing)
    first, second = needed[:, 0], needed[:, 1]
    kind = torch.where(first & second, 1, torch.where(first, 0, torch.where(second, 2, 3)))
    alone, shared, total = (kind == 0).sum(1), (kind == 1).sum(1), (kind < 3).sum(1)
    width = 2 * int((total.max() + 1) // 2)
    order = kind.argsort(dim=1, stable=True)
    order = torch.nn.functional.pad(order, (0, max(0, width - order.shape[1])))[:, :width]
    there = torch.arange(width, device=table.device) < total[:, None]
    # What fills up the last step is the tile before it once more: a tile that is surely there to be loaded.
    last = order.gather(1, (total - 1).clamp(min=0)[:, None]) if width else order
    tile = torch.where(there, order, last)
    codes = torch.where(there[:, None], table.gather(2, order[:, None].expand(-1, 2, -1)), nothing)
    out = torch.zeros(table.shape[0], 1 + width, 4, dtype=torch.int32, device=table.device)
    out[:, 0, 0] = (total + 1) // 2
    out[:, 0, 2] = (alone + shared + 1) // 2
    out[:, 0, 3] = torch.where(alone < total, alone // 2, (total + 1) // 2)
    out[:, 1::2, 0], out[:, 1::2, 1] = tile[:, 0::2].int(), tile[:, 1::2].int()
    for query in (0, 1):
        out[:, 2::2, 2 * query], out[:, 2::2, 2 * query + 1] = codes[:, query, 0::2], codes[:, query, 1::2]
    return out


def fragments(bitmaps):
    """int32 (bitmaps, 128) as ``build`` has them."""
    import torch

    thread = torch.arange(128, device=bitmaps.device)[:, None]
    element = torch.arange(32, device=bitmaps.device)[None, :]
    row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (element >> 1 & 1)
    column = 8 * (element // 4) + 2 * (thread % 4) + (element & 1)
    keep = bitmaps[:, row.flatten()].view(-1, 128, 32) >> column & 1
    return (keep << element).sum(2).to(torch.int32).contiguous()
