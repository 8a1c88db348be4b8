"""Buffers move between rounds: other addresses, the same values, for every implementation alike."""

import pytest
import torch

from fusescope.core.records import BenchSpec
from fusescope.core.reporter import Collect
from fusescope.measure.subject import Operator
from fusescope.measure.timing.placement import SLACK, Placement
from fusescope.measure.trial import Trial


def test_tensors_move_in_place_and_keep_their_values():
    x, odd = torch.randn(33, 7), torch.arange(24.0).reshape(4, 6).T
    values, held = x.clone(), x
    inputs = {"x": x, "turned": odd, "n": 3, "nothing": torch.empty(0), "half": torch.ones(5).half()}
    move = Placement(inputs, "cpu", seed=1)
    seen, still = {x.data_ptr()}, odd.data_ptr()
    for _ in range(8):
        shift = move()
        assert 0 <= shift < SLACK and shift % 64 == 0
        seen.add(x.data_ptr())
        assert torch.equal(held, values) and held.is_contiguous() and x.shape == (33, 7)
        assert inputs["half"].dtype == torch.float16 and inputs["half"].sum() == 5
    assert len(seen) >= 8 and all(p % 64 == 0 for p in seen), "aligned as torch's allocator aligns"
    assert len({p % 4096 for p in seen}) > 3, "within a page, too"
    assert odd.data_ptr() == still, "what is not dense stays"


def test_the_same_seed_moves_alike():
    shifts = [[Placement({"x": torch.ones(3)}, "cpu", seed)() for _ in range(3)] for seed in (1, 1, 2)]
    assert shifts[0] == shifts[1] != shifts[2]


def test_without_room_nothing_moves_any_more(monkeypatch):
    x = torch.ones(10)
    move = Placement({"x": x}, "cpu", 0)
    before = x.data_ptr()

    def full(*args, **kwargs):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 40 bytes")

    monkeypatch.setattr(torch, "empty", full)
    move()
    assert x.data_ptr() == before and move.cost_s == float("inf")


@pytest.mark.usefixtures("known_ceilings")
def test_every_implementation_of_an_operator_sees_the_moved_inputs():
    spec = BenchSpec("softmax", ("eager",), ({"rows": 64, "cols": 32},), "eager", budget_s=0.3, min_s=0.0)
    subject = Operator("softmax")
    trial = Trial(spec, subject, subject.validate(spec.cases[0]), Collect())
    from fusescope.measure.candidate import candidates

    several = candidates(subject, ["eager", "cpu"], "cpu", None)
    trial.check(several, lambda text: None)
    tensor = next(v for v in trial.inputs.values() if isinstance(v, torch.Tensor))
    addresses = set()
    for c in several:
        run = c.run
        c.run = lambda run=run: (addresses.add(tensor.data_ptr()), run())[1]
    trial.sample(several, "eager", None, None)
    assert len(addresses) > 3
    assert all(c.status is None and len(c.series["eager"].rounds) >= 5 for c in several)
