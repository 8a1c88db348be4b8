"""The schedule says the same as the lists it was made from, for every pair of query tiles, and names only
tiles that exist."""

import pytest
import torch

from fusescope import masks
from fusescope.ops.attention import prepare
from fusescope.ops.attention.plan import schedule, tiles

MASKS = [
    "causal",
    "sliding_window:left=70,right=10",
    "longformer:window=20,global_tokens=3",
    "bigbird:window=8,global_tokens=3,block=16",
    "strided:window=64,stride=64",
    "random:density=0.001,seed=4",
    "document:lengths=100+30+70",
]


def decode(plan):
    """The dense mask of every mask of a plan, read off its schedule as the kernel reads it."""
    steps, fragments = schedule.build(
        plan.row_ptr,
        plan.tile_index,
        plan.tile_code,
        plan.bitmaps,
        plan.batch * plan.heads,
        plan.seq_q,
        plan.seq_k,
    )
    q_tiles, k_tiles = -(-plan.seq_q // 64), -(-plan.seq_k // 64)
    pairs = -(-q_tiles // 2)
    thread, element = torch.arange(128)[:, None], torch.arange(32)[None, :]
    row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (element >> 1 & 1)
    column = 8 * (element // 4) + 2 * (thread % 4) + (element & 1)
    squares = torch.zeros(fragments.shape[0], 64, 64, dtype=torch.bool)
    squares[:, row, column] = (fragments[:, :, None] >> element & 1).bool()
    out = torch.zeros(plan.batch * plan.heads, pairs * 128, k_tiles * 64, dtype=torch.bool)
    assert steps.shape[0] == plan.batch * plan.heads * pairs and steps.shape[2] == 4 and steps.is_contiguous()
    for number, entries in enumerate(steps.tolist()):
        count, _, end, begin = entries[0]
        assert 0 <= begin <= count and end <= count
        seen = [set(), set()]
        for s in range(count):
            for query in (0, 1):
                codes = entries[2 + 2 * s][2 * query : 2 * query + 2]
                inside = s < end if query == 0 else s >= begin
                for tile, code in zip(entries[1 + 2 * s][:2], codes):
                    assert 0 <= tile < k_tiles
                    if code >= 0 and not squares[code].any():
                        continue
                    assert inside and tile not in seen[query]
                    seen[query].add(tile)
                    at = (number % pairs * 2 + query) * 64
                    square = squares[code] if code >= 0 else torch.ones(64, 64, dtype=torch.bool)
                    out[number // pairs, at : at + 64, tile * 64 : tile * 64 + 64] = square
    return out


@pytest.mark.parametrize("sizes", [(1, 1), (64, 64), (65, 200), (200, 200), (130, 65), (300, 513)])
@pytest.mark.parametrize("mask", MASKS)
def test_the_schedule_is_the_mask(mask, sizes):
    if mask.startswith("document") and sizes != (200, 200):
        pytest.skip("the lengths are those of 200 keys")
    plan = prepare(masks.parse(mask), *sizes)
    if plan.is_full:
        pytest.skip("every key is live: there are no lists")
    check(plan)


def check(plan):
    got, want = decode(plan), plan.dense().reshape(-1, plan.seq_q, plan.seq_k)
    assert torch.equal(got[:, : plan.seq_q, : plan.seq_k], want)
    assert not got[:, :, plan.seq_k :].any(), "keys that are not there are masked by fragments"


def test_several_masks_and_several_pieces(monkeypatch):
    torch.manual_seed(0)
    plan = prepare(torch.rand(2, 3, 150, 300) < 0.01, 150, 300)
    check(plan)
    whole = schedule.build(plan.row_ptr, plan.tile_index, plan.tile_code, plan.bitmaps, 6, 150, 300)
    monkeypatch.setattr(schedule, "_CELLS", 1)
    for one, other in zip(
        whole, schedule.build(plan.row_ptr, plan.tile_index, plan.tile_code, plan.bitmaps, 6, 150, 300)
    ):
        assert torch.equal(one, other)


def test_a_mask_that_keeps_nothing_has_no_steps():
    plan = prepare(torch.zeros(100, 100, dtype=torch.bool), 100, 100)
    steps, _ = schedule.build(plan.row_ptr, plan.tile_index, plan.tile_code, plan.bitmaps, 1, 100, 100)
    assert steps.shape[1] == 1 and not steps[:, 0, 0].any() and tiles.TILE == 64
