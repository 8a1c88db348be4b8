"""Wrong implementations that random inputs cannot tell from right ones: inputs that can."""

import pytest
import torch

from fusescope import ops
from fusescope.measure.checking.check import Case
from fusescope.measure.selfcheck import catching


@pytest.mark.parametrize("op", ["gemm", "bmm"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("k", [256, 1024])
def test_sums_kept_in_sixteen_bits_are_caught(op, dtype, k):
    case = Case(ops.load(op), ops.load(op).validate({"m": 64, "n": 64, "k": k}), dtype, "cpu", seed=1)
    file = catching.load("product_fp16_sums").__file__
    assert case.verify(ops.make(op, f"{file}:wrong", case.inputs)).reason


def layernorm_one_pass(x, weight, bias, eps):
    """Variance as mean of squares minus square of mean, in fp32: cancels where the mean is large."""
    f = x.float()
    mean = f.mean(-1, keepdim=True)
    variance = f.square().mean(-1, keepdim=True) - mean.square()
    return ((f - mean) * torch.rsqrt(variance + eps) * weight + bias).to(x.dtype)


def test_cancelling_variance_is_caught_by_a_mean_far_from_zero():
    """Normal inputs cannot tell it apart; test_rows.py has the inputs that can, and this shows that they
    do."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 768, generator=generator) + 10_000
    one, zero = torch.ones(768), torch.zeros(768)
    right = torch.nn.functional.layer_norm(x.double(), (768,), None, None, 1e-5)
    error = (layernorm_one_pass(x, one, zero, 1e-5) - right).abs().max()
    assert not error < 2e-4, "what test_rows.py allows (NaN counts as caught)"
