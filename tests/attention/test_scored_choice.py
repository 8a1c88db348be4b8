"""Which kernel "auto" takes with a soft-cap or sinks, of those that take them."""

from types import SimpleNamespace

import pytest
import torch

from fusescope.core.errors import Unsupported
from fusescope.core.sources import families
from fusescope.ops.attention import prepare
from fusescope.ops.attention.dispatch import candidates
from fusescope.ops.attention.dispatch.choice import choose_scored

WINDOW = torch.arange(256)[:, None] // 4 == torch.arange(256) // 4


@pytest.mark.parametrize(
    "dtype, queries, mask, chosen",
    (
        (torch.float16, 256, None, "v2_blockwise"),
        (torch.bfloat16, 1, None, "v1_rowwise"),  # most of a tile would be idle
        (torch.float16, 256, torch.eye(256, dtype=torch.bool), "v1_rowwise"),  # a key per row
        (torch.float32, 256, None, "v2_blockwise_fp32"),
        (torch.float32, 256, WINDOW, "v1_rowwise"),  # tiles are nearly empty
    ),
)
def test_it_is_by_the_rule(dtype, queries, mask, chosen, monkeypatch):
    variants = [v for v in families()["attention"].variants if v.device == "cuda"]
    monkeypatch.setattr(candidates, "built", lambda family, index: variants)
    q, k = (
        SimpleNamespace(dtype=dtype, shape=(1, 2, n, 64), device=torch.device("cuda:0"))
        for n in (queries, 256)
    )
    plan = None if mask is None else prepare(mask, queries, 256)
    assert choose_scored(q, k, plan, plain=True) == chosen
    assert choose_scored(q, k, plan, plain=True, expressed=True) == chosen
    monkeypatch.setattr(
        candidates, "built", lambda family, index: [v for v in variants if v.name == "v3_hopper"]
    )
    with pytest.raises(Unsupported, match=r"no kernel for this GPU that takes .*expressed=True"):
        choose_scored(q, k, plan, plain=True, expressed=True)
