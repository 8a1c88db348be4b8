"""Comparisons of few samples: equal implementations are not told apart, as measured or over another baseline,
whenever in the life of the noise they were sampled; large differences are found."""

import numpy as np
import pytest

from fusescope.analysis.compare import ratios
from fusescope.core.records import Record, Times
from fusescope.measure import compare
from fusescope.measure.compare import Stop, rounds, speedup
from tests.measure import noise
from tests.measure.test_false_claims import SCENARIOS, TRIALS

pytestmark = pytest.mark.slow
COUNTS = (5, 8, 10, 14, 20)
AT_ONCE = Stop(budget_s=0.0, min_s=0.0)  # as few rounds as compare.FEWEST_ROUNDS
LEFT_OUT = "own step"  # sampled after it, the two are equals no more


def compared(monkeypatch, name, count, a_turn, slower=1.0, trials=TRIALS):
    """(As measured, over another baseline) of each trial: the second of two over the first, after ``count``
    rounds of ``a_turn`` samples; the other baseline has the same kind of noise, in every other trial none."""
    monkeypatch.setattr(compare, "FEWEST_ROUNDS", count)
    for seed in range(trials):
        rng, clock = np.random.default_rng([seed, count, a_turn]), noise.Clock()
        monkeypatch.setattr(compare, "time", clock.module)
        first, second = SCENARIOS[name](rng)
        third = first if name in noise.SHARED else SCENARIOS[name](rng)[0] * (seed % 2)
        samplers = {
            "first": noise.Sampled(clock, first, rng),
            "second": noise.Sampled(clock, second, rng, median=slower),
            "third": noise.Sampled(clock, third, rng),
        }
        start = int(rng.integers(0, noise.MOST - count))
        for sampler in samplers.values():
            sampler.turn = start
        direct = rounds(samplers, AT_ONCE, seed, turn_ms=1.3 * a_turn + 0.1, baseline="first")
        assert {len(s.rounds) for s in direct.values()} == {count}
        measured = speedup(direct["first"], direct["second"], AT_ONCE)
        for sampler in samplers.values():
            sampler.turn = start
        beside = rounds(samplers, AT_ONCE, seed, turn_ms=1.3 * a_turn + 0.1, baseline="third")
        records = [record(n, beside[n], beside["third"]) for n in ("first", "second")]
        yield measured, ratios.over(*records, "eager")


def record(name, series, baseline):
    times = Times(eager=series.time())
    ratio = speedup(baseline, series, AT_ONCE)
    return Record("add", name, {"n": 8}, "float32", "cpu", "ok", time_ms=times, speedup=ratio)


def verdicts(*args, **more):
    return zip(*((a.verdict, b.verdict) for a, b in compared(*args, **more)), strict=True)


@pytest.mark.sample(6)
@pytest.mark.parametrize("a_turn", [1, 3])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", [n for n in SCENARIOS if n != LEFT_OUT])
def test_equals_are_told_apart_twice_in_a_hundred_at_most(monkeypatch, name, count, a_turn):
    for found in verdicts(monkeypatch, name, count, a_turn):
        assert found.count("faster") + found.count("slower") <= 0.02 * TRIALS


@pytest.mark.sample(4)
@pytest.mark.parametrize("slower", [4.0, 60.0])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", [n for n in SCENARIOS if n != LEFT_OUT])
def test_four_and_sixty_times_as_slow_is_found(monkeypatch, name, count, slower):
    """Of 4, noise that multiplies the time of some rounds leaves a part open."""
    for found in verdicts(monkeypatch, name, count, 1, slower, trials=20):
        least = 8 if slower < 60 and name in ("heavy tails", "bursts") else 19
        assert found.count("slower") >= least and set(found) <= {"slower", "inconclusive"}


@pytest.mark.sample(2)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", [n for n in SCENARIOS if n != LEFT_OUT])
def test_a_third_is_never_turned_round_nor_called_the_same(monkeypatch, name, count):
    for found in verdicts(monkeypatch, name, count, 3, 1.3, trials=50):
        assert not found.count("faster") and not found.count("same")


@pytest.mark.parametrize("count", COUNTS)
def test_two_thirds_are_found_where_it_is_quiet(monkeypatch, count):
    measured, _ = verdicts(monkeypatch, "independent 1 %", count, 3, 1.67)
    assert measured.count("slower") >= 0.95 * TRIALS


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["AR 0.95", "two speeds, 20 turns", "bursts"])
def test_interval_and_verdict_never_contradict_one_another(monkeypatch, name):
    for slower in (1.0, 1.3, 4.0):
        for found in compared(monkeypatch, name, 8, 1, slower, trials=20):
            for s in found:
                beyond = "faster" if s.low > 1.01 else "slower" if s.high < 0.99 else None
                assert s.low <= s.median <= s.high and (s.verdict in ("faster", "slower")) == bool(beyond)
                assert beyond is None or s.verdict == beyond
