"""The comparison as compare.py really makes it (rounds, peeking, stopping, verdict) on simulated noise: equal
implementations are not told apart, a planted slow-down is found or left open, never turned round."""

import numpy as np
import pytest

from fusescope.analysis.statistics import ratio_interval, ratio_of_processes
from fusescope.measure import compare
from fusescope.measure.compare import Stop, rounds, speedup
from tests.measure import noise

pytestmark = pytest.mark.slow

TRIALS = 100
FULL, HURRIED = Stop(budget_s=3.0), Stop(budget_s=0.05, min_s=0.0)
TEN, FORTY = (Stop(budget_s=s, min_s=0.0) for s in (0.08, 0.32))  # rounds, where the budget ends the sampling


def verdicts(monkeypatch, levels, slower, stop, trials=TRIALS, rounds_seen=None, **sampler):
    """The verdict on the second of two implementations, which is ``slower`` times slower, in each trial."""
    found = []
    for seed in range(trials):
        rng, clock = np.random.default_rng(seed), noise.Clock()
        monkeypatch.setattr(compare, "time", clock.module)
        first, second = levels(rng)
        samplers = {
            "first": noise.Sampled(clock, first, rng, **sampler),
            "second": noise.Sampled(clock, second, rng, median=slower, **sampler),
        }
        series = rounds(samplers, stop, seed, turn_ms=4.0, baseline="first")
        if rounds_seen is not None:
            rounds_seen.append(len(series["first"].rounds))
        found.append(speedup(series["first"], series["second"], stop).verdict)
    return found


def own(name):
    return lambda rng: (noise.NOISES[name](rng), noise.NOISES[name](rng))


def shared(name):
    def both(rng):
        level = noise.SHARED[name](rng)
        return level, level

    return both


SCENARIOS = {name: own(name) for name in noise.NOISES} | {name: shared(name) for name in noise.SHARED}


@pytest.mark.sample(4)
@pytest.mark.parametrize("stop", [FULL, HURRIED, TEN, FORTY], ids=["full", "hurried", "ten", "forty"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_equals_are_told_apart_twice_in_a_hundred_at_most(monkeypatch, name, stop):
    found = verdicts(monkeypatch, SCENARIOS[name], 1.0, stop)
    assert found.count("faster") + found.count("slower") <= 0.02 * TRIALS, found


def process(levels, rng, count):
    """(ratio, interval) of one process of so many rounds of two equal implementations."""
    times = [
        np.exp(np.median(own[:count, None] + 0.002 * rng.standard_normal((count, 3)), axis=1))
        for own in levels(rng)
    ]
    shown = float(np.median(times[0]) / np.median(times[1]))
    return shown, ratio_interval(*times, shown)


@pytest.mark.sample(2)
@pytest.mark.parametrize("count", [5, 10, 40])
@pytest.mark.parametrize("name", SCENARIOS)
def test_equals_of_three_processes_are_told_apart_twice_in_a_hundred_at_most(name, count):
    claims = 0
    for seed in range(TRIALS):
        rng = np.random.default_rng(seed)
        ratios, within = zip(*(process(SCENARIOS[name], rng, count) for _ in range(3)), strict=True)
        whole = ratio_of_processes(ratios, within, float(np.exp(np.mean(np.log(ratios)))))
        claims += whole.low > 1 or whole.high < 1
    assert claims <= 0.02 * TRIALS


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", [n for n in SCENARIOS if n != "own step"])
def test_five_per_cent_are_never_turned_round_nor_called_the_same(monkeypatch, name):
    found = verdicts(monkeypatch, SCENARIOS[name], 1.05, FULL)
    assert found.count("faster") + found.count("same") <= 0.02 * TRIALS, found


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", SCENARIOS)
def test_three_times_as_slow_is_found_whatever_the_noise(monkeypatch, name):
    found = verdicts(monkeypatch, SCENARIOS[name], 3.0, FULL, trials=20)
    assert found == ["slower"] * 20


def test_three_times_as_slow_is_found_in_five_rounds_where_it_is_quiet(monkeypatch):
    found = verdicts(monkeypatch, own("independent 1 %"), 3.0, HURRIED, trials=20)
    assert found == ["slower"] * 20


def test_three_per_cent_are_found_where_it_is_quiet(monkeypatch):
    found = verdicts(monkeypatch, own("independent 1 %"), 1.03, FULL)
    assert found.count("slower") >= 0.95 * TRIALS, found


def test_one_per_cent_is_found_within_half_a_per_cent(monkeypatch):
    seen = []
    stop = Stop(budget_s=5.0, same_within=0.005)
    found = verdicts(monkeypatch, own("independent 1 %"), 1.01, stop, rounds_seen=seen)
    assert found.count("slower") >= 0.95 * TRIALS and found.count("faster") + found.count("same") == 0
    assert np.median(seen) <= 310


@pytest.mark.sample(1)
@pytest.mark.parametrize("tick_ms", [0.001, 0.05, 0.3])
def test_a_coarse_timer_tells_nothing_apart(monkeypatch, tick_ms):
    found = verdicts(monkeypatch, own("independent 1 %"), 1.0, FULL, tick_ms=tick_ms)
    assert found.count("faster") + found.count("slower") <= 0.02 * TRIALS


def test_equal_ones_are_called_the_same_where_it_is_quiet(monkeypatch):
    found = verdicts(monkeypatch, own("independent 1 %"), 1.0, FULL)
    assert found.count("same") >= 0.95 * TRIALS
