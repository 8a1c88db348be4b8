"""Plans: what prepare() builds against the mask itself, its cache, its figures, and masks given as
tensors."""

import copy
import pickle

import numpy as np
import pytest
import torch

from fusescope import masks
from fusescope.core.errors import Unsupported
from fusescope.ops.attention import prepare
from fusescope.ops.attention.plan import tiles
from fusescope.ops.attention.plan.plan import of_handle, of_key
from tests.attention.attention_tools import MASKS, SIZES, fits, mask_text

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", MASKS)
def test_a_plan_is_its_mask(name, device):
    for seq, seq_k in (*SIZES, (200, 200), (300, 140)):
        text = mask_text(name, 2, seq_k)
        if not fits(text, seq, seq_k):
            continue
        mask = masks.parse(text)
        dense = mask.dense(seq, seq_k)
        plan = prepare(mask, seq, seq_k, device)
        expected = torch.from_numpy(np.atleast_3d(dense) if dense.ndim == 3 else dense[None]).to(device)
        assert torch.equal(plan.dense()[:, 0], expected), (seq, seq_k)
        _check_lists(plan, expected.cpu().numpy())


def _check_lists(plan, dense):
    """The lists against brute force: every live tile once and in order, codes, and the figures."""
    live = full = 0
    for m in range(dense.shape[0]):
        for t in range(-(-plan.seq_q // 64)):
            expected = []
            for j in range(-(-plan.seq_k // 64)):
                tile = dense[m, 64 * t : 64 * t + 64, 64 * j : 64 * j + 64]
                if tile.any():
                    expected.append((j, bool(tile.all())))
            live += len(expected)
            full += sum(whole for _, whole in expected)
            if plan.is_full:
                continue
            row = m * -(-plan.seq_q // 64) + t
            begin, end = plan.row_ptr[row], plan.row_ptr[row + 1]
            found = list(zip(plan.tile_index[begin:end].tolist(), (plan.tile_code[begin:end] < 0).tolist()))
            assert found == expected
    assert (plan.full_tiles, plan.partial_tiles) == (full, live - full)
    assert plan.live_elements == dense.sum()
    lists = plan.row_ptr
    assert plan.longest == (-(-dense.shape[2] // 64) if plan.is_full else int((lists[1:] - lists[:-1]).max()))
    assert plan.live_keys == pytest.approx(dense.sum() / (dense.shape[0] * plan.seq_q))


def test_a_mask_that_keeps_everything_needs_no_lists():
    for mask in (
        None,
        masks.load("full"),
        masks.load("prefix_lm", prefix=100),
        torch.ones(2, 1, 1, 100, dtype=torch.bool),
    ):
        plan = prepare(mask, 100, 100)
        assert plan.is_full and plan.bytes == 0 and plan.live_elements % 10000 == 0


def test_equal_bitmaps_are_stored_once():
    plan = prepare(masks.load("causal"), 1024, 1024)
    assert plan.partial_tiles == 16 and plan.bitmaps.shape == (1, 64)
    plan = prepare(masks.load("sliding_window", left=64, right=64), 1024, 1024)
    assert plan.partial_tiles == 30 and plan.bitmaps.shape[0] == 2
    random = prepare(masks.load("random", density=0.1), 256, 256)
    assert random.bitmaps.shape[0] == random.partial_tiles == 16


def test_unique_rows_reconstructs_and_survives_hash_collisions(monkeypatch):
    words = torch.randint(-(2**62), 2**62, (50, 64))[torch.randint(0, 50, (300,))]
    distinct, index = tiles.unique_rows(words)
    assert torch.equal(distinct[index], words) and len(distinct) == len(torch.unique(words, dim=0))
    monkeypatch.setattr(
        torch, "randint", lambda *a, **k: torch.zeros(2, 64, dtype=torch.int64)
    )  # weak factors: sums collide
    words = torch.zeros(2, 64, dtype=torch.int64)
    words[0, 3] = words[1, 4] = 1
    distinct, index = tiles.unique_rows(words)
    assert len(distinct) == 2 and torch.equal(distinct[index], words)


def test_plans_of_masks_are_cached_and_those_of_tensors_are_not():
    first = prepare(masks.load("causal"), 70, 90)
    assert prepare(masks.load("causal"), 70, 90, "cpu") is first
    assert prepare(masks.load("causal"), 70, 91) is not first
    tensor = torch.ones(70, 90, dtype=torch.bool).tril()
    before = prepare(tensor, 70, 90)
    tensor[0] = True
    after = prepare(tensor, 70, 90)
    assert bool(after.dense()[0, 0, 0].all()) and not bool(before.dense()[0, 0, 0].all())


def test_figures_and_name_of_a_plan():
    plan = prepare(masks.load("bigbird", seed=3), 256, 256)
    assert plan.build_ms > 0
    assert plan.bytes == 4 * (len(plan.row_ptr) + 2 * len(plan.tile_index)) + 8 * plan.bitmaps.numel()
    assert "bigbird:seed=3" in repr(plan) and "256 x 256 on cpu" in repr(plan)
    assert plan.dense() is plan.dense()


def test_masks_per_batch_and_head():
    keep = torch.rand(2, 3, 70, 130) < 0.3
    plan = prepare(keep, 70, 130)
    assert (plan.batch, plan.heads) == (2, 3)
    assert torch.equal(plan.dense(), keep)
    per_head = prepare(keep[:1], 70, 130)
    assert (per_head.batch, per_head.heads) == (1, 3)
    per_batch = prepare(keep[:, :1, :1], 70, 130)
    assert (per_batch.batch, per_batch.heads) == (2, 1)
    assert torch.equal(per_batch.dense(), keep[:, :1, :1].expand(-1, -1, 70, -1))


@pytest.mark.parametrize("name", MASKS)
def test_the_ways_of_the_two_devices_agree(name):
    """On the CPU masks are evaluated and packed by NumPy, on a GPU by torch; torch's way also runs on CPU
    tensors."""
    bound = masks.parse(mask_text(name, 2, 130)).bind(100, 130)
    for sequence in range(bound.sequences or 1):
        keep = tiles._evaluate_torch(bound, sequence, (64, 100), (3, 130), "cpu")
        assert torch.equal(keep, tiles.evaluate(bound, sequence, (64, 100), (3, 130), "cpu"))
    squares = torch.rand(5, 64, 64) < 0.5
    words = tiles._pack_torch(squares)
    assert torch.equal(words, tiles.pack(squares)) and torch.equal(tiles.unpack(words), squares)


@pytest.mark.parametrize("device", DEVICES)
def test_a_long_mask_is_built_in_pieces(device, monkeypatch):
    monkeypatch.setattr(tiles, "_PIECE", 1 << 14)
    monkeypatch.setattr(tiles, "_PIECE_CUDA", 1 << 14)
    monkeypatch.setattr(tiles, "_COLUMNS", 128)
    for name in ("longformer", "strided"):
        mask = masks.load(name)
        plan = prepare(mask, 500, 700, device)
        assert torch.equal(plan.dense()[0, 0].cpu(), torch.from_numpy(mask.dense(500, 700)))


@pytest.mark.parametrize(
    "mask, error, text",
    [
        ("causal", TypeError, "a Mask, a bool tensor or None"),
        (torch.ones(3, 3), TypeError, "of bool, True = keep, not torch.float32"),
        (
            torch.ones(7, 9, dtype=torch.bool),
            ValueError,
            r"broadcastable to \(B, H, 8, 9\); its shape is \(7, 9\)",
        ),
        (torch.ones(1, 1, 1, 8, 9, dtype=torch.bool), ValueError, "broadcastable"),
        (torch.ones(8, 9, dtype=torch.bool, device="meta"), ValueError, "the mask tensor is on meta"),
    ],
)
def test_what_prepare_refuses(mask, error, text):
    with pytest.raises(error, match=text):
        prepare(mask, 8, 9)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda plan: pickle.loads(pickle.dumps(plan))])
def test_a_copy_has_a_key_of_its_own(copied):
    """Compiled code finds plans by their keys, which each process counts: one that was pickled elsewhere
    would else be found as another plan of this process."""
    plan = prepare(masks.load("causal"), 70, 90)
    made = copied(plan)
    assert of_key(made.key) is of_handle(made.handle) is made
    assert of_key(plan.key) is of_handle(plan.handle) is plan
    assert torch.equal(made.dense(), plan.dense())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_a_plan_for_a_device_that_is_not_there(device):
    with pytest.raises(ValueError, match=f"there is no device {device} here: torch finds no GPU"):
        prepare(masks.load("causal"), 9, 11, device)


def test_a_plan_is_for_a_cpu_or_a_gpu():
    with pytest.raises(Unsupported, match="device meta; cpu and cuda are supported"):
        prepare(masks.load("causal"), 9, 11, "meta")
