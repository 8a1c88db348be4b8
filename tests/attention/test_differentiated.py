"""Attention is forward only: no transform of torch.func and no forward-mode differentiation gets zeros for a
derivative."""

from __future__ import annotations

import pytest
import torch

from fusescope import attention, attention_decode, attention_varlen
from fusescope.core.errors import Unsupported

Q, K = torch.randn(3, 4, 9, 32), torch.randn(3, 2, 9, 32)
ROWS, ENDS = torch.randn(9, 2, 32), torch.tensor([0, 4, 9], dtype=torch.int32)
LENGTHS = torch.tensor([9, 3, 0], dtype=torch.int32)
CALLS = {
    "attention": (lambda q: attention(q, K, K), Q),
    "bias": (lambda b: attention(Q, K, K, bias=b), torch.randn(9, 9)),
    "scored": (lambda q: attention(q, K, K, softcap=20.0), Q),
    "varlen": (lambda q: attention_varlen(q, ROWS, ROWS, ENDS, ENDS), ROWS),
    "decode": (lambda q: attention_decode(q, K, K, LENGTHS), Q[:, :, :1]),
    "decode general": (lambda q: attention_decode(q, K, K, LENGTHS), Q[:, :, :2]),
}


@pytest.mark.parametrize("call, x", CALLS.values(), ids=CALLS)
def test_a_tangent_is_refused(call, x):
    call(x)  # the second call goes the fast path
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            for derivative in (
                lambda: torch.func.jvp(call, (x,), (x,)),
                lambda: torch.func.jacfwd(lambda scale: call(scale * x))(torch.ones(())),
                lambda: torch.func.linearize(call, x),
            ):
                with pytest.raises(Unsupported, match=r"has a tangent \(torch.func.jvp"):
                    derivative()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        with pytest.raises(Unsupported, match="has a tangent"):
            call(dual)
        assert torch.equal(call(x), call(x.clone()))  # others are followed, this one is not
    assert torch.equal(call(x), call(x.clone()))


@pytest.mark.parametrize("call, x", CALLS.values(), ids=CALLS)
def test_a_gradient_is_refused_where_vmap_hides_it(call, x):
    call(x)

    def total(several):
        return torch.func.vmap(call)(several).sum()

    several = torch.stack([x, 2 * x])
    with pytest.raises(Unsupported, match="forward only"):
        torch.func.grad(total)(several)
    with pytest.raises(Unsupported, match="forward only"):
        torch.func.vmap(call)(several.clone().requires_grad_())
    with torch.no_grad():
        torch.func.vmap(torch.func.vmap(call))(several[None].clone().requires_grad_())


def test_batches_are_computed_as_before():
    several = torch.stack([Q, 2 * Q])
    found = torch.func.vmap(lambda q: attention(q, K, K))(several)
    assert torch.equal(found, torch.stack([attention(q, K, K) for q in several]))
