"""A mistake that only large scores show is caught by them; the others are in measure/wrong."""

from pathlib import Path

import pytest

from fusescope import ops
from fusescope.measure.checking.check import Case
from tests.attention.attention_tools import OP, case, wrong

FILE = Path(__file__).parent / "wrong" / "wrong_attention.py"


@pytest.mark.parametrize("seq, seq_k", [(70, 70), (70, 200), (200, 70)])
def test_the_right_one_passes(seq, seq_k):
    held = Case(OP, case(seq, seq_k, "causal", heads=4, kv_heads=2, bias="none"), "float32", "cpu", 0)
    assert held.verify(ops.make("attention", f"{FILE}:right", held.inputs)).reason is None


def test_a_missing_maximum_is_caught_by_large_scores():
    inputs = OP.inputs(case(70, mask="causal"), "float32", "cpu", 0)
    inputs["q"] *= 60
    for function, expected in (("right", False), ("forgets_the_maximum", True)):
        out = ops.make("attention", f"{FILE}:{function}", inputs)()
        assert bool(wrong(out, inputs, "float32")) is expected
