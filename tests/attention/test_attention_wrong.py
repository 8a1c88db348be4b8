"""The judge that decides whether a kernel is right catches kernels with known mistakes, and lets the right
one pass."""

from pathlib import Path

import pytest

from fusescope import ops
from fusescope.measure.checking.check import Case
from tests.attention.attention_tools import OP, case, wrong

FILE = Path(__file__).parent / "wrong" / "wrong_attention.py"
SAME, MORE_KEYS, EMPTY = (70, 70, "causal"), (70, 200, "causal"), (200, 70, "causal")
CAUGHT_BY = {
    "ignores_partial_tiles": SAME,
    "drops_the_last_tile": SAME,
    "causal_from_the_start": MORE_KEYS,
    "causal_shifted_by_one": MORE_KEYS,
    "nan_in_empty_rows": EMPTY,
    "average_in_empty_rows": EMPTY,
    "neighbouring_heads": SAME,
    "bias_before_scale": SAME,
}


def judged(function: str, seq: int, seq_k: int, mask: str) -> str | None:
    values = case(
        seq, seq_k, mask, heads=4, kv_heads=2, bias="head" if function == "bias_before_scale" else "none"
    )
    held = Case(OP, values, "float32", "cpu", 0)
    return held.verify(ops.make("attention", f"{FILE}:{function}", held.inputs)).reason


@pytest.mark.parametrize("shape", (SAME, MORE_KEYS, EMPTY), ids=str)
def test_the_right_one_passes(shape):
    assert judged("right", *shape) is None


@pytest.mark.parametrize("function, shape", CAUGHT_BY.items(), ids=str)
def test_a_wrong_one_is_caught(function, shape):
    assert judged(function, *shape)


def test_a_missing_maximum_is_caught_by_large_scores():
    inputs = OP.inputs(case(70, mask="causal"), "float32", "cpu", 0)
    inputs["q"] *= 60
    for function, expected in (("right", False), ("forgets_the_maximum", True)):
        out = ops.make("attention", f"{FILE}:{function}", inputs)()
        assert bool(wrong(out, inputs, "float32")) is expected
