"""What several ranks give is checked as a whole, in the order of the replicas."""

import re

import pytest
import torch

from fusescope import models
from fusescope.measure.parallel import checks
from fusescope.models.parallel import placed
from fusescope.models.run import build, tolerance

CASE = {"batch": 4, "seq": 16, "layers": 2, "heads": 2, "head_dim": 32}


class Alone:
    """A world in which this rank is the first, and what the others have is known."""

    device, first = "cpu", True

    def __init__(self):
        self.parts: list[torch.Tensor] = []

    def decide_first(self, work):
        return work()

    def barrier(self):
        pass

    wait = barrier

    def tensors(self, own):
        return self.parts


class Nothing:
    member = output = False


@pytest.fixture(scope="module")
def prepared():
    case = models.validate("bert-small", CASE)
    model = build.build("bert-small", case, "float32", "cpu")
    inputs = build.inputs(model, case, 0)
    world = Alone()
    return world, checks.Reference(world, model, inputs), placed.reference(model, inputs).float()


def changed(right, index, by):
    out = right.clone()
    out[index] += by
    return out


@pytest.mark.parametrize(
    "of, why",
    [
        (lambda r: [r], None),
        (lambda r: [r[:2], r[2:]], None),
        (lambda r: [r[:1], r[1:2], r[2:3], r[3:]], None),
        (lambda r: [r[2:], r[:2]], "out of tolerance"),
        (lambda r: [r[:2]], r"the result is \(2, 16, 64\) in torch.float32, not \(4, 16, 64\) in float32"),
        (lambda r: [r[:2], r[2:].half()], "the result is .* in"),
        (lambda r: [changed(r, (3, 15, 63), 1e-2)], r"1 of 4096 elements are out of tolerance"),
        (lambda r: [changed(r, (0, 0, 0), float("nan"))], "NaN"),
        (lambda r: [r * (1 + 8e-6)], "as a whole"),
    ],
)
def test_a_result_is_checked(prepared, of, why):
    world, reference, right = prepared
    world.parts = of(right)
    outcome = reference.compare(Nothing())
    if why is None:
        assert outcome.reason is None and outcome.accuracy.max_abs < 1e-6
    else:
        assert re.search(why, outcome.reason)


def test_the_reference_in_pieces_is_the_reference(prepared, monkeypatch):
    _, _, right = prepared
    case = models.validate("bert-small", CASE)
    model = build.build("bert-small", case, "float32", "cpu")
    monkeypatch.setattr(tolerance, "_PIECE", 2 * 16 * 16 * 3)  # three sequences, then one
    inputs = build.inputs(model, case, 0)
    assert [len(p["lengths"]) for p in tolerance.pieces(model, inputs, torch.float64)] == [3, 1]
    assert torch.equal(placed.reference(model, inputs).float(), right)
