"""A bias of every layout, dtype and broadcast shape, for every kernel."""

import itertools

import pytest
import torch

from fusescope.core.errors import Unsupported
from fusescope.ops.attention import attention
from tests.attention import bias_tools, scored_tools
from tests.attention.attention_tools import kernels

LONG = (
    {"seq": 1100, "head_dim": 128, "heads": 8, "kv_heads": 2, "layout": "rows of one batch", "batch": 2}
    | {"mask": "sliding_window:left=90,right=0"},
    {"seq": 700, "head_dim": 64, "batch": 12, "heads": 12, "layout": "padded of one head", "masking": True},
    {
        "seq": 513,
        "head_dim": 64,
        "heads": 4,
        "layout": "rows",
        "mask": "longformer:window=60,global_tokens=5",
    },
    {"seq": 130, "seq_k": 1504, "head_dim": 96, "batch": 2, "layout": "one row", "softcap": 20.0}
    | {"sinks": True},
    {"seq": 2048, "head_dim": 64, "heads": 12, "layout": "rows", "mask": "causal", "sinks": True},
    {"seq": 1111, "head_dim": 128, "heads": 16, "layout": "padded", "mask": "causal", "softcap": 30.0},
    # In parts, rows and maybe keys in strided-permuted order; long lists, which are split.
    {"seq": 2048, "head_dim": 64, "heads": 8, "layout": "rows", "mask": "strided:window=64,stride=16"}
    | {"masking": True, "sinks": True},
    {"seq": 1024, "head_dim": 128, "batch": 2, "heads": 8, "layout": "rows of one batch", "softcap": 20.0}
    | {"mask": "dilated:window=60,dilation=2"},
    {"seq": 900, "head_dim": 64, "batch": 8, "heads": 12, "layout": "one row", "masking": True}
    | {"mask": "bigbird:window=60,global_tokens=64,block=64,random_blocks=2"},
    {"seq": 64, "seq_k": 8192, "head_dim": 64, "heads": 2, "layout": "rows", "masking": True},
    {"seq": 100, "seq_k": 4100, "head_dim": 128, "heads": 2, "layout": "late of one head", "float32": True},
)


def _run(values, dtype, device, impl, number):
    """(what is wrong with a kernel's result, or None; whether it took the case)."""
    inputs = bias_tools.inputs(values, dtype, device, number)
    given = {name: inputs[name] for name in ("bias", "softcap", "sinks")}
    try:
        out = attention(inputs["q"], inputs["k"], inputs["v"], inputs["plan"], impl=impl, **given)
    except Unsupported:
        return None, False
    return scored_tools.wrong(out, inputs, dtype, inputs["softcap"], inputs["sinks"]), True


@pytest.mark.parametrize("impl, device", kernels())
@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16"))
def test_each_kernel_is_what_is_specified(impl, device, dtype):
    took = 0
    for number, values in enumerate(bias_tools.CASES + (LONG if device == "cuda" else ())):
        wrong, taken = _run(values, dtype, device, impl, number)
        assert wrong is None, values
        took += taken
    if not took:
        pytest.skip(f"{impl} takes none of these in {dtype}")


@pytest.mark.gpu
def test_auto_takes_every_one():
    for (number, values), dtype in itertools.product(enumerate(LONG), ("float32", "float16")):
        assert _run(values, dtype, "cuda", "auto", number) == (None, True), values


def test_the_bias_of_another_row_shows():
    """The judge: a bias that is off by a row, or by a key, is out of tolerance in every case."""
    for number, values in enumerate(bias_tools.CASES):
        inputs = bias_tools.inputs(values, "float32", "cpu", number)
        for dim in (2, 3):
            if inputs["bias"].shape[dim] > 1:
                off = inputs | {"bias": inputs["bias"].roll(1, dim)}
                out = scored_tools.reference(off, inputs["softcap"], inputs["sinks"])
                for dtype in ("float16", "bfloat16"):
                    reason = scored_tools.wrong(out, inputs, dtype, inputs["softcap"], inputs["sinks"])
                    assert reason is not None, (values, dim, dtype)


def test_layouts_are_what_they_say():
    shape = (2, 3, 5, 9)
    for layout, strides in (
        ("rows", (135, 45, 9, 1)),
        ("padded", (240, 80, 16, 1)),
        ("transposed of one head", (45, 45, 1, 5)),
        ("one column of one batch", (15, 5, 1, 1)),
    ):
        bias = bias_tools.made(layout, False, shape, torch.float16, "cpu", 0)
        assert bias.stride() == strides and bias.expand(shape).isfinite().all()
    assert bias_tools.made("late", False, shape, torch.float16, "cpu", 0).storage_offset() == 1
    masking = bias_tools.made("rows", True, shape, torch.float16, "cpu", 0)
    assert (masking == -torch.inf).all(-1).any() and masking.isfinite().any()
