"""attention(clear_padding=True): K and V without what lies at keys that no query sees."""

import math

import pytest
import torch

from fusescope.ops.attention import attention, prepare
from fusescope.ops.attention.plan import padding
from tests.attention.attention_tools import OP, case

MASKS = (
    "padding:lengths=66+3",
    "sliding_window:left=3,right=0",
    "strided:window=5,stride=8",
    "random:density=0.02",
    "full",
)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("seq, seq_k", ((70, 130), (5, 70)))
def test_the_keys_that_no_row_sees(mask, seq, seq_k):
    plan = OP.inputs(case(seq, seq_k, mask, batch=2), "float32", "cpu", 0)["plan"]
    k, v = torch.full((2, 1, seq_k, 32), math.nan), torch.ones(2, 1, seq_k, 32)
    for given, out in zip((k, v), padding.clear(k, v, plan)):
        unseen = ~plan.dense().any(2).expand(2, 1, seq_k)
        assert (out[unseen] == 0).all() and torch.equal(
            out[~unseen].nan_to_num(7), given[~unseen].nan_to_num(7)
        )
        assert out is given or unseen.any()  # nothing is copied where every key is seen


def test_heads_that_share_keys():
    """A key is cleared where neither query head of its KV head sees it."""
    keep = torch.ones(1, 4, 5, 9, dtype=torch.bool)
    keep[:, :2, :, 8] = keep[:, 2, :, 7] = False
    k, v = (torch.full((1, 2, 9, 32), math.inf) for _ in range(2))
    cleared = padding.clear(k, v, prepare(keep, 5, 9))[1][0, :, :, 0] == 0
    assert cleared.nonzero().tolist() == [[0, 8]]


@pytest.mark.parametrize("as_tensor", (False, True))
def test_a_call(as_tensor):
    inputs = OP.inputs(case(20, 30, "padding:lengths=20+3", batch=2), "float32", "cpu", 0)
    q, k, v, plan = (inputs[n] for n in ("q", "k", "v", "plan"))
    expected = attention(q, k, v, plan)
    spoilt = torch.where(plan.dense().any(2)[..., None], v, math.nan)
    mask = plan.dense() if as_tensor else inputs["mask"]
    assert torch.equal(attention(q, k, spoilt, mask, clear_padding=True), expected)
    capped = attention(q, k, spoilt, mask, clear_padding=True, softcap=3.0)
    assert torch.equal(capped, attention(q, k, v, plan, softcap=3.0)) and spoilt.isnan().any()
    assert torch.equal(attention(q, k, v, clear_padding=True), attention(q, k, v))


def test_what_it_refuses(monkeypatch):
    q = torch.randn(1, 2, 9, 32)
    with pytest.raises(ValueError, match="plan"):
        attention(q, q, q, prepare(None, 8, 9), clear_padding=True)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with pytest.raises(RuntimeError, match="not for compiled code"):
        attention(q, q, q, clear_padding=True)
