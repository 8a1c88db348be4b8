"""Which kernel "auto" takes with a soft-cap or sinks, of those that take them."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from fusescope import masks
from fusescope.core.errors import Unsupported
from fusescope.core.sources import families
from fusescope.ops.attention import prepare
from fusescope.ops.attention.describe import inputs
from fusescope.ops.attention.dispatch import candidates, choice

WINDOW = torch.arange(256)[:, None] // 4 == torch.arange(256) // 4


@pytest.mark.parametrize(
    "dtype, queries, mask, chosen",
    (
        (torch.float16, 256, None, "v4_scheduled"),
        (torch.bfloat16, 256, masks.parse("causal"), "v4_scheduled"),
        (torch.bfloat16, 256, WINDOW, "v2_blockwise"),  # plans of tensors have no schedule
        (torch.bfloat16, 1, None, "v1_rowwise"),  # most of a tile would be idle
        (torch.float16, 256, torch.eye(256, dtype=torch.bool), "v1_rowwise"),  # a key per row
        (torch.float32, 256, None, "v2_blockwise_fp32"),
        (torch.float32, 256, WINDOW, "v1_rowwise"),  # tiles are nearly empty
    ),
)
def test_it_is_by_the_rule(dtype, queries, mask, chosen, monkeypatch):
    variants = [v for v in families()["attention"].variants if v.device == "cuda"]
    monkeypatch.setattr(choice, "_fit", lambda index: None)
    monkeypatch.setattr(candidates, "built", lambda family, index: variants)
    monkeypatch.setattr(choice, "tma_takes", lambda tensor: tensor.shape[2] > 1)
    q, k, v = (
        SimpleNamespace(dtype=dtype, shape=(1, 2, n, 64), device=torch.device("cuda:0"))
        for n in (queries, 256, 256)
    )
    plan = None if mask is None else prepare(mask, queries, 256)
    if isinstance(mask, masks.Mask):
        plan = dataclasses.replace(plan, schedule=plan.buffer)  # as on a device of compute capability 9.0
    assert choice.choose_scored(q, k, v, plan) == chosen
    assert choice.choose_scored(q, k, v, plan, expressed=True) == chosen
    given = {"q": q, "k": k, "v": v, "plan": plan, "bias": None, "score": "score"}
    assert inputs.auto(given) == chosen
    if chosen == "v4_scheduled":  # it takes no scale below 0, and TMA no odd strides
        assert choice.choose_scored(q, k, v, plan, positive_scale=False) == "v2_blockwise"
        assert choice.choose_scored(q, k, v, plan, bias=True) == "v4_scheduled"
        monkeypatch.setattr(choice, "tma_takes", lambda tensor: tensor is not v)
        assert choice.choose_scored(q, k, v, plan) == "v2_blockwise"
    monkeypatch.setattr(
        candidates, "built", lambda family, index: [v for v in variants if v.name == "v3_hopper"]
    )
    with pytest.raises(Unsupported, match=r"no kernel for this GPU that takes .*expressed=True"):
        choice.choose_scored(q, k, v, plan, expressed=True)


def test_with_prices_it_is_by_the_fit(monkeypatch):
    """As for plain calls, of those that take a soft-cap; work items are for one mask. Expressions have no
    prices."""
    asked, variants = [], [v for v in families()["attention"].variants if v.device == "cuda"]
    monkeypatch.setattr(choice, "_by_fit", lambda q, k, plan, known, bias: asked.append(known) or "v5_parts")
    monkeypatch.setattr(choice, "tma_takes", lambda tensor: True)
    monkeypatch.setattr(candidates, "built", lambda family, index: variants)
    shape = (2, 2, 256, 64)
    q, k, v = (
        SimpleNamespace(dtype=torch.float16, shape=shape, device=torch.device("cuda:0")) for _ in range(3)
    )
    for mask, one in ((None, True), ("causal", True), ("padding:lengths=9+200", False), (WINDOW, False)):
        plan = (
            None if mask is None else prepare(masks.parse(mask) if isinstance(mask, str) else mask, 256, 256)
        )
        if isinstance(mask, str):
            plan = dataclasses.replace(plan, schedule=plan.buffer)
        assert choice.choose_scored(q, k, v, plan) == "v5_parts"
        (known,) = asked
        asked.clear()
        assert known.scored and ("parts" in known.plans) == one
        takes = {v.name for v in variants if v.accepts(known)}
        assert ("v5_parts" in takes) == one and "v3_hopper" not in takes
    assert choice.choose_scored(q, k, v, None, expressed=True) == "v4_scheduled" and not asked


@pytest.mark.gpu
def test_auto_takes_the_kernel_of_the_plain_call_where_that_takes_a_soft_cap():
    takes = {v.name for v in families()["attention"].variants if v.takes.scored}
    for mask, seq, dim in (
        ("dilated", 2048, 64),
        ("full", 1024, 128),
        ("strided", 1024, 128),
        ("causal", 70, 64),
    ):
        q = torch.randn(8, 12, seq, dim, device="cuda", dtype=torch.float16)
        plan = prepare(masks.parse(mask), seq, seq, "cuda")
        plain, scored = choice.choose(q, q, q, plan), choice.choose_scored(q, q, q, plan)
        assert scored in takes and (scored == plain or plain not in takes)
