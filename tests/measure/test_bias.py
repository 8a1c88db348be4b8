"""The part of the self-check that asks what the place of buffers does, on one small shape."""

import pytest

from fusescope.core.reporter import Collect
from fusescope.measure import compare
from fusescope.measure.selfcheck import bias

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("known_ceilings")]


@pytest.mark.parametrize("part", [bias.equal, bias.planted])
def test_a_part_gives_its_figures(part, monkeypatch):
    monkeypatch.setattr(bias, "_BUDGET_S", 0.2)
    monkeypatch.setattr(compare, "OVERTIME", 1.0)
    steps = []
    row = part("cpu", 0, Collect(), steps.append, ((64, 256),))
    assert row.passed is not False or part is bias.equal, "1 % is never turned round"
    assert " of 1 " in row.figure and "%" in row.limit
    assert len(steps) == 1 and "64 × 256" in steps[0]


def test_samples_are_longer_by_the_planted_share():
    class Two:
        mode, cost_ms = "eager", 1.0

        def take(self, count, look=None):
            return [2.0] * count

    assert bias.Slower(Two(), 0.01).take(2) == [2.02, 2.02]
