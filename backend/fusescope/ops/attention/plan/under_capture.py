"""A plan of a bool tensor without reading anything back: what a CUDA graph can capture and compiled code can
hold, so that its lists follow the mask's values.

A list is as long as it could be and a bitmap is kept for every tile, because how many are live is not known
here; the kernels read no further than row_ptr says. There is no schedule, which is as long as the longest
list.
"""

from __future__ import annotations

from fusescope.ops.attention.plan import buffer, tiles
from fusescope.ops.attention.plan.plan import Plan


def plan(mask, seq_q: int, seq_k: int) -> Plan:
    """The plan of a bool tensor (B, H, seq_q, seq_k), True = keep, sizes of 1 standing for all; its figures
    are upper bounds."""
    return of_lists(lists(mask, seq_q, seq_k), seq_q, seq_k, *mask.shape[:2])


def of_lists(data, seq_q: int, seq_k: int, batch: int, heads: int) -> Plan:
    """The plan whose buffer ``lists`` made of a mask of batch × heads."""
    import torch

    columns, masks = -(-seq_k // tiles.TILE), batch * heads
    rows = masks * -(-seq_q // tiles.TILE)
    total = rows * columns
    arrays = {
        "row_ptr": (torch.int32, (rows + 1,)),
        "tile_index": (torch.int32, (total,)),
        "tile_code": (torch.int32, (total,)),
        "bitmaps": (torch.int64, (total, tiles.TILE)),
    }
    layout, views = buffer.divided(data, arrays, (seq_q, seq_k, batch, heads))
    return Plan(
        None,
        seq_q,
        seq_k,
        data.device,
        batch,
        heads,
        masks * seq_q * seq_k,
        total,
        0,
        columns,
        0.0,
        data,
        layout,
        **views,
    )


def words(batch: int, heads: int, seq_q: int, seq_k: int) -> int:
    """int32 words of the buffer that ``lists`` makes."""
    rows = batch * heads * -(-seq_q // tiles.TILE)
    return rows * -(-seq_k // tiles.TILE) * (2 * tiles.TILE + 2) + rows + 1


def lists(mask, seq_q: int, seq_k: int):
    """The buffer of such a plan, int32 (words,), of a bool tensor as ``plan`` takes it."""
    import torch

    edge, device = tiles.TILE, mask.device
    masks, rows, columns = mask.shape[0] * mask.shape[1], -(-seq_q // edge), -(-seq_k // edge)
    keep = mask.expand(-1, -1, seq_q, seq_k).reshape(masks, seq_q, seq_k)
    padded = torch.nn.functional.pad(keep, (0, columns * edge - seq_k, 0, rows * edge - seq_q))
    squares = padded.view(masks * rows, edge, columns, edge).transpose(1, 2)
    count = squares.sum((2, 3), dtype=torch.int32)
    whole = (
        tiles.rows_inside(seq_q, rows, device)[:, None] * tiles.rows_inside(seq_k, columns, device)
    ).repeat(masks, 1)
    live, total = (count > 0).flatten(), masks * rows * columns
    number = torch.arange(total, device=device, dtype=torch.int32)
    place = torch.where(live, live.cumsum(0) - 1, total)  # what is not live goes to one place behind the list
    of_tiles = torch.zeros(2, total + 1, dtype=torch.int32, device=device)
    of_tiles[0].scatter_(0, place, number % columns)
    of_tiles[1].scatter_(0, place, torch.where((count == whole).flatten(), -1, number))
    row_ptr = torch.zeros(masks * rows + 1, dtype=torch.int32, device=device)
    row_ptr[1:] = live.view(-1, columns).sum(1).cumsum(0)
    arrays = {
        "row_ptr": row_ptr,
        "tile_index": of_tiles[0, :total],
        "tile_code": of_tiles[1, :total],
        "bitmaps": _packed(torch, squares).view(total, edge),
    }
    return buffer.join(arrays, (seq_q, seq_k, *mask.shape[:2]), device)[0]


def _packed(torch, squares):
    """int64 words (…, 64) of bool (…, 64, 64): bit c of a word is column c. By bytes, since int64 of every
    element would be eight times the mask."""
    weights = 1 << torch.arange(8, device=squares.device, dtype=torch.uint8)
    bytes_ = (
        squares.reshape(*squares.shape[:-1], 8, 8).view(torch.uint8).mul(weights).sum(-1, dtype=torch.uint8)
    )
    return bytes_.view(torch.int64)[..., 0]
