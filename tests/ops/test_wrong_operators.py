"""The checker itself: implementations that are wrong on purpose are caught, by the tolerance and cases that
real ones pass."""

from pathlib import Path

import pytest
import torch
from op_cases import cases

from fusescope import ops
from fusescope.measure.checking.check import Case

WRONG = Path(__file__).parents[1] / "wrong"


def caught(op, file, function, dtype, wanted=None):
    """Reasons given over the odd cases, contiguous or not (or over one case)."""
    module, reasons = ops.load(op), []
    for values in [module.validate(wanted)] if wanted else cases(op):
        for contiguous in (True, False):
            case = Case(module, values, dtype, "cpu", seed=1, contiguous=contiguous)
            judgement = case.verify(ops.make(op, f"{WRONG / file}:{function}", case.inputs))
            reasons += [judgement.reason] if judgement.reason else []
        if reasons:
            break
    return reasons


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("op", ["gemm", "bmm"])
@pytest.mark.parametrize(
    "function",
    ["short_k", "whole_steps_of_k", "ignores_strides", "swapped_halves", "unwritten_column", "nan_corner"],
)
def test_wrong_products_are_caught(op, function, dtype):
    assert caught(op, "products.py", function, dtype)


@pytest.mark.parametrize("op", ["gemm", "bmm"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("k", [256, 1024])
def test_sums_kept_in_sixteen_bits_are_caught(op, dtype, k):
    assert caught(op, "products.py", "fp16_accumulation", dtype, {"m": 64, "n": 64, "k": k})


def test_one_matrix_for_the_whole_batch_is_caught():
    assert caught("bmm", "products.py", "first_batch_only", "float32")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    "function", ["softmax_without_last", "softmax_padded", "softmax_half_sum", "softmax_unwritten_row"]
)
def test_wrong_softmax_is_caught(function, dtype):
    assert caught("softmax", "rows.py", function, dtype, {"rows": 64, "cols": 1000})


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    "function", ["layernorm_corrected", "layernorm_eps_outside", "layernorm_without_bias"]
)
def test_wrong_layernorm_is_caught(function, dtype):
    wanted = {"rows": 64, "cols": 33} if function != "layernorm_eps_outside" else {"rows": 4096, "cols": 3}
    assert caught("layernorm", "rows.py", function, dtype, wanted)


def test_cancelling_variance_is_caught_by_a_mean_far_from_zero():
    """Normal inputs cannot tell it apart; test_rows.py has the inputs that can, and this shows that they
    do."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("wrong_rows", WRONG / "rows.py")
    rows = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rows)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 768, generator=generator) + 10_000
    one, zero = torch.ones(768), torch.zeros(768)
    right = torch.nn.functional.layer_norm(x.double(), (768,), None, None, 1e-5)
    error = (rows.layernorm_one_pass(x, one, zero, 1e-5) - right).abs().max()
    assert not error < 2e-4, "what test_rows.py allows (NaN counts as caught)"
