"""Shuffled rounds and the stopping rule, with samplers that draw from known distributions instead of a
clock."""

import random

import pytest

from fusescope.core.errors import Cancelled
from fusescope.measure import compare, failures
from fusescope.measure.compare import Stop, rounds, speedup


class Drawn:
    """A sampler that draws its latencies (ms): mode eager, three samples a turn."""

    mode, cost_ms = "eager", 2.5

    def __init__(self, median=1.0, noise=0.003, seed=0, fail_after=None):
        self.median, self.noise, self.rng, self.turns, self.fail_after = (
            median,
            noise,
            random.Random(seed),
            0,
            fail_after,
        )

    def take(self, count):
        self.turns += 1
        if self.fail_after is not None and self.turns > self.fail_after:
            raise MemoryError("nothing left")
        return [self.median * self.rng.lognormvariate(0, self.noise) for _ in range(count)]


QUICK = Stop(min_s=0.0, budget_s=0.3)
pytestmark = pytest.mark.usefixtures("clock")


def test_every_round_holds_every_implementation_in_a_drawn_order():
    names = []
    found = rounds({n: Drawn(seed=i) for i, n in enumerate("abcd")}, QUICK, seed=3, turn=names.append)
    count = len(found["a"].rounds)
    orders = {tuple(names[i : i + 4]) for i in range(0, len(names), 4)}
    assert all(sorted(order) == list("abcd") for order in orders) and len(orders) > 5
    assert all(len(found[n].rounds) == count == len(found[n].order) for n in "abcd")
    assert {len(taken) for taken in found["a"].rounds} == {3}, (
        "equally many in each round, so that flat samples can be cut again"
    )
    places = [found["a"].order.count(i) for i in range(4)]
    assert all(places), "every place in the order comes up"


def test_the_same_seed_gives_the_same_order():
    first, second = [], []
    rounds({n: Drawn() for n in "abc"}, QUICK, 7, first.append)
    rounds({n: Drawn() for n in "abc"}, QUICK, 7, second.append)
    assert first[:30] == second[:30]


def test_quiet_samples_converge_and_noisy_ones_say_that_they_did_not():
    quiet = rounds({"a": Drawn(noise=0.001)}, QUICK, 0)["a"]
    assert quiet.converged and quiet.time().converged and quiet.time().n >= 10
    noisy = rounds({"a": Drawn(noise=0.5)}, Stop(min_s=0.0, budget_s=0.02), 0)["a"]
    assert not noisy.converged and not noisy.time().converged
    slow = rounds({"a": Drawn(noise=0.0)}, Stop(min_s=0.0, budget_s=0.0), 0)["a"]
    assert len(slow.rounds) == compare.FEWEST_ROUNDS and slow.converged, (
        "fifteen equal samples, though no time was left"
    )
    few = rounds({"a": Drawn(noise=0.0)}, Stop(min_samples=20, min_s=0.0, budget_s=0.0), 0)["a"]
    assert not few.converged, "fewer samples than were asked for never converge"


def test_nothing_is_dropped():
    class Humps(Drawn):
        def take(self, count):
            return [1.0, 9.0, 1.0][:count]

    series = rounds({"a": Humps()}, Stop(min_s=0.0, budget_s=0.05), 0)["a"]
    assert series.flat.count(9.0) == len(series.rounds)


def test_state_is_kept_by_round():
    readings = iter(range(10**6))
    found = rounds({"a": Drawn(), "b": Drawn()}, QUICK, 0, state=lambda: {"n": next(readings)})
    assert (
        [s["n"] for s in found["a"].states]
        == [s["n"] for s in found["b"].states]
        == list(range(len(found["a"].rounds)))
    )


def test_one_that_fails_drops_out_and_the_others_go_on():
    found = rounds({"a": Drawn(), "b": Drawn(fail_after=3)}, QUICK, 0)
    assert isinstance(found["b"].failure, MemoryError) and len(found["b"].rounds) == 3
    assert found["a"].failure is None and found["a"].converged


def test_a_stop_ends_between_turns():
    turns = []

    def stop(name):
        turns.append(name)
        if len(turns) > 5:
            raise Cancelled

    with pytest.raises(Cancelled):
        rounds({"a": Drawn(), "b": Drawn()}, QUICK, 0, turn=stop)
    assert len(turns) == 6


def test_speedups_are_paired():
    found = rounds(
        {"slow": Drawn(2.0, seed=1), "fast": Drawn(1.0, seed=2), "same": Drawn(2.0, seed=3)}, QUICK, 0
    )
    fast = speedup(found["slow"], found["fast"])
    assert fast.of == "eager" and fast.verdict == "faster" and fast.low < fast.median < fast.high
    assert fast.median == pytest.approx(2.0, rel=0.01)
    assert speedup(found["fast"], found["slow"]).verdict == "slower"
    assert speedup(found["slow"], found["same"]).verdict == "cannot tell"
    itself = speedup(found["slow"], found["slow"])
    assert (itself.median, itself.low, itself.high, itself.verdict) == (1.0, 1.0, 1.0, "cannot tell")


def test_what_ends_a_cuda_context():
    import torch

    assert not failures.ends_context(torch.OutOfMemoryError("CUDA out of memory"))
    assert not failures.ends_context(ValueError("no"))
