"""A masked key is unseen by every kernel: NaN and infinities there do not leak, empty rows are zeros."""

import math

import pytest
import torch

from fusescope.core.sources import families
from fusescope.ops.attention import attention, attention_decode, prepare
from tests.attention import unseen, varlen_tools
from tests.attention.attention_tools import MASKS, case, fits, mask_text, skip_unsupported

DTYPES = ("float32", "float16", "bfloat16")


def kernels(family: str, checks) -> list:
    """(implementation, device, check): CUDA kernels are marked gpu."""
    found = []
    for v in families()[family].variants:
        for check in checks:
            marks = [pytest.mark.gpu] if v.device == "cuda" else []
            found.append(pytest.param(v.name, v.device, check, marks=marks, id=f"{v.name}-{check}"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("impl, device, check", kernels("attention", unseen.DENSE))
def test_attention(impl, device, check, dtype):
    def run(inputs):
        q, k, v, mask = (inputs[name] for name in ("q", "k", "v", "plan"))
        return attention(q, k, v, mask, bias=inputs["bias"], impl=impl)

    with skip_unsupported(device):
        reasons = [unseen.DENSE[check](run, values, dtype, device) for values in unseen.CASES]
    assert not any(reasons), reasons


@pytest.mark.parametrize("name", MASKS)
def test_every_mask(name):
    """V is NaN at the first, a middle and the last key: rows that do not see them keep every bit."""
    judged = 0
    for seq, seq_k in ((33, 33), (130, 130), (33, 130), (130, 33)):
        text = mask_text(name, 2, seq_k)
        if not fits(text, seq, seq_k):
            continue
        values = case(seq, seq_k, text, heads=2, kv_heads=1)
        inputs = unseen.OP.inputs(values, "float32", "cpu", 0)
        q, k, v, plan = (inputs[n] for n in ("q", "k", "v", "plan"))
        expected = attention(q, k, v, plan)
        for key in (0, seq_k // 2, seq_k - 1):
            spoilt = v.clone()
            spoilt[:, :, key] = math.nan
            out = attention(q, k, spoilt, plan)
            sees = plan.dense()[..., key].expand(2, 2, seq)
            assert out[sees].isnan().all() and torch.equal(out[~sees], expected[~sees]), (seq, seq_k, key)
            judged += int((~sees).any())
    assert judged >= 1 or name == "full"


@pytest.mark.parametrize("mask", (False, None))
def test_rows_that_see_nothing_are_zeros(mask):
    """By a mask, or by a bias of −inf; V holds NaN."""
    q, k = torch.randn(1, 2, 70, 32), torch.randn(1, 2, 130, 32)
    v = torch.full_like(k, math.nan)
    keep = torch.ones(70, 130, dtype=torch.bool)
    keep[:66] = False
    if mask is None:
        out = attention(q, k, v, bias=torch.zeros(70, 130).masked_fill(~keep, -math.inf))
    else:
        out = attention(q, k, v, prepare(keep, 70, 130, "cpu"))
    assert (out[:, :, :66] == 0).all() and out[:, :, 66:].isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("impl, device, check", kernels("attention_varlen", unseen.PACKED))
def test_packed_sequences(impl, device, check, dtype):
    def run(packed):
        return varlen_tools.call(packed, impl)

    with skip_unsupported(device):
        reason = unseen.packed(run, unseen.PACKED[check], dtype, device)
    assert reason is None, reason


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("impl, device, check", kernels("attention_decode", unseen.DECODING))
def test_decoding(impl, device, check, dtype):
    def run(case):
        return attention_decode(*case.args, impl=impl, **case.options)

    with skip_unsupported(device):
        reason = unseen.decoding(run, unseen.DECODING[check], dtype, device)
    assert reason is None, reason


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("impl, device, check", kernels("attention_decode", unseen.DECODING_BIAS))
def test_a_bias_of_decoding(impl, device, check, dtype):
    def run(case):
        return attention_decode(*case.args, impl=impl, **case.options)

    with skip_unsupported(device):
        reason = unseen.decoding_bias(run, unseen.DECODING_BIAS[check], dtype, device)
    assert reason is None, reason


@pytest.mark.parametrize("dtype", DTYPES)
def test_decoding_sees_a_key_it_is_given(dtype):
    """A spoilt key inside one length and behind the other. (test_decode has NaN behind the lengths.)"""
    dtype = getattr(torch, dtype)
    q, cache = torch.randn(2, 4, 1, 32).to(dtype), torch.randn(2, 2, 600, 32).to(dtype)
    v, lengths = cache.clone(), torch.tensor([599, 580], dtype=torch.int32)
    v[:, :, 590] = math.nan
    out = attention_decode(q, cache, v, lengths)
    assert out[0].isnan().all() and torch.equal(out[1], attention_decode(q, cache, cache, lengths)[1])
