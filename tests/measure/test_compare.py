"""Shuffled rounds and the stopping rule, with samplers that draw from known distributions instead of a
clock."""

import dataclasses
import json
import random

import pytest

from fusescope.core.errors import Cancelled
from fusescope.core.records import Speedup
from fusescope.measure import compare, failures
from fusescope.measure.compare import Stop, rounds, speedup


class Drawn:
    """A sampler that draws its latencies (ms): mode eager, three samples a turn."""

    mode, cost_ms = "eager", 1.3

    def __init__(self, median=1.0, noise=0.003, seed=0, fail_after=None):
        self.median, self.noise, self.rng, self.turns, self.fail_after = (
            median,
            noise,
            random.Random(seed),
            0,
            fail_after,
        )

    def take(self, count, look=None):
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


@pytest.mark.parametrize("cost_ms, samples", [(2.1, 2), (1.99, 2), (1.4, 2), (3.0, 1), (0.1, 20), (1.0, 4)])
def test_what_is_about_as_fast_as_the_baseline_has_as_many_samples_a_turn(cost_ms, samples):
    """Equals of 1.99 and 2.01 ms had two samples and one: the first of a turn, some per cent slower, was half
    of the one and all of the other."""
    base, other, alone = Drawn(), Drawn(), Drawn()
    base.cost_ms, other.cost_ms, alone.cost_ms = 1.99, cost_ms, 2.1
    found = rounds({"base": base, "other": other}, QUICK, 0, baseline="base")
    assert {len(taken) for taken in found["base"].rounds} == {2}
    assert {len(taken) for taken in found["other"].rounds} == {samples}
    assert {len(taken) for taken in rounds({"a": alone}, QUICK, 0)["a"].rounds} == {1}


@pytest.mark.parametrize(
    "cost_ms, faster, verdict",
    [(8.0, 1.1, "inconclusive"), (0.1, 1.1, "faster"), (1.3, 1.1, "faster"), (8.0, 2.0, "faster")],
)
def test_equals_that_the_calibration_took_for_unlike_are_not_told_apart(cost_ms, faster, verdict):
    """A sample a turn beside twenty: 5 to 10 per cent apart, on a machine with two busy loops."""
    base, other = Drawn(median=faster), Drawn(seed=1)
    base.cost_ms, other.cost_ms = cost_ms, 0.1
    found = rounds({"base": base, "other": other}, QUICK, 0, baseline="base")
    assert speedup(found["base"], found["other"], QUICK).verdict == verdict


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
        {"slow": Drawn(2.0, seed=1), "fast": Drawn(1.0, seed=2), "same": Drawn(2.0, seed=3)},
        Stop(min_s=0.0, budget_s=2.0),
        0,
        baseline="slow",
    )
    fast = speedup(found["slow"], found["fast"])
    assert fast.of == "eager" and fast.verdict == "faster" and fast.low < fast.median < fast.high
    assert fast.median == pytest.approx(2.0, rel=0.01)
    assert speedup(found["fast"], found["slow"]).verdict == "slower"
    assert speedup(found["slow"], found["same"]).verdict == "same"
    itself = speedup(found["slow"], found["slow"])
    assert (itself.median, itself.low, itself.high, itself.verdict) == (1.0, 1.0, 1.0, "same")


def test_what_ends_a_cuda_context():
    import torch

    assert not failures.ends_context(torch.OutOfMemoryError("CUDA out of memory"))
    assert not failures.ends_context(ValueError("no"))


class Moved(Drawn):
    """Reads another median wherever its buffers lie."""

    def moved(self, shift):
        self.median = 1.0 + shift / 1000


class Mover:
    cost_s = 0.001

    def __init__(self):
        self.shifts = 0

    def __call__(self):
        self.shifts += 1
        return self.shifts % 7


def test_buffers_move_between_rounds_for_all_alike():
    move = Mover()
    found = rounds({"a": Moved(noise=0.0), "b": Moved(noise=0.0)}, QUICK, 0, move=move)
    assert move.shifts >= 5
    assert [r[0] for r in found["a"].rounds] == [r[0] for r in found["b"].rounds]
    assert len(set(found["a"].flat)) == 7


def test_moves_that_cost_too_much_are_left_out():
    move = Mover()
    move.cost_s = 100.0
    rounds({"a": Moved()}, QUICK, 0, move=move)
    assert move.shifts == 0


def test_one_that_cannot_move_drops_out():
    class Stuck(Drawn):
        def moved(self, shift):
            raise ValueError("captured once and for all")

    found = rounds({"a": Moved(), "b": Stuck()}, QUICK, 0, move=Mover())
    assert isinstance(found["b"].failure, ValueError) and found["a"].converged


def test_shown_medians_ratio_interval_and_verdict_never_contradict_one_another():
    for seed in range(30):
        rng = random.Random(seed)
        noise = rng.choice([0.001, 0.05, 0.8])
        found = rounds({n: Drawn(1.0, noise, seed=rng.random()) for n in "abc"}, QUICK, seed, baseline="a")
        medians = {n: s.time().median for n, s in found.items()}
        for n in "bc":
            s = speedup(found["a"], found[n])
            assert s.median == medians["a"] / medians[n] and s.low <= s.median <= s.high
            assert s.verdict not in ("faster", "slower") or (s.verdict == "faster") == (s.median > 1)


@pytest.mark.parametrize(
    "median, low, high, verdict",
    [
        (1.05, 1.011, 1.06, "faster"),
        (1.05, 1.009, 1.06, "inconclusive"),
        (0.95, 0.94, 0.989, "slower"),
        (0.95, 0.94, 0.991, "inconclusive"),
        (1.0, 0.991, 1.009, "same"),
        (0.9925, 0.991, 0.994, "same"),
        (1.33, 1.07, 3.06, "inconclusive"),
        (0.07, 0.000104, 1.25, "inconclusive"),
        (10.0, 9.0, 11.0, "faster"),
        (1.0, 0.0, float("inf"), "inconclusive"),
        (1.2, 1.3, 1.4, "inconclusive"),
    ],
)
def test_the_verdict_is_that_of_the_interval(median, low, high, verdict):
    """Of a record that does not say if it converged, none that is wider than its difference claims one."""
    assert Speedup("eager", median, low, high).verdict == verdict


@pytest.mark.parametrize(
    ("median", "converged", "ends", "verdict"),
    [
        (0.0167, False, (0.0167 / 1.5, 0.0167 * 1.5), "slower"),
        (0.833, False, (0.833 / 1.5, 0.833 * 1.5), "inconclusive"),
        (1.002, False, (1.002 / 1.5, 1.002 * 1.5), "inconclusive"),
        (0.833, True, (0.833 * 0.99, 0.833 * 1.01), "slower"),
    ],
)
def test_what_did_not_converge_leaves_a_factor_open_and_shows_it(median, converged, ends, verdict):
    """It was inconclusive [0.0166, 0.0168]: 60 times as slow."""
    found = Speedup("eager", median, median * 0.99, median * 1.01, converged=converged)
    assert (found.low, found.high, found.verdict) == (*ends, verdict)
    again = Speedup.from_json(json.loads(json.dumps(dataclasses.asdict(found))))
    assert again == found
    assert again.sampled == (None if converged else (median * 0.99, median * 1.01))
    with pytest.raises(ValueError, match="the low and the high end"):
        Speedup.from_json({"of": "eager", "median": 1.0, "low": 1.0, "high": 1.0, "sampled": [1.0]})


def test_an_interval_wider_than_its_difference_may_lie_beyond_one():
    assert Speedup("graph", 0.686, 0.549, 0.853, converged=True).verdict == "slower"


def test_a_stored_word_is_not_trusted():
    old = {"of": "graph", "median": 1.0, "low": 0.998, "high": 1.002, "verdict": "cannot tell"}
    read = Speedup.from_json(old)
    assert read.verdict == "same" and read.words == "same within 1 %"
    assert Speedup.from_json(old | {"same_within": 0.001}).words == "inconclusive (too noisy)"
