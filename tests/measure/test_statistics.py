"""The promises of the statistics, on synthetic latencies: independent, correlated, heavy-tailed. Seeded, so
never by luck."""

import math

import numpy as np
import pytest

from fusescope.analysis import estimate
from fusescope.analysis.statistics import (
    Interval,
    block_length,
    converged,
    correlation_time,
    median_interval,
    ratio_interval,
    verdict,
)
from fusescope.core.records import BenchSpec

pytestmark = pytest.mark.slow

TRIALS = 100


def latencies(rng, n, correlation=0.0, heavy=False, noise=0.01):
    """n latencies around 1 ms: log-normal, or with Student's t (2.5 degrees) tails, and AR(1) in time."""
    shocks = rng.standard_t(2.5, n + 30) if heavy else rng.standard_normal(n + 30)
    x = np.zeros(n + 30)
    for i in range(1, n + 30):
        x[i] = correlation * x[i - 1] + shocks[i]
    return np.exp(noise * x[30:])


@pytest.mark.parametrize("heavy", [False, True], ids=["normal", "heavy tails"])
@pytest.mark.parametrize("correlation", [0.0, 0.5])
@pytest.mark.parametrize("noise", [0.01, 0.04])
@pytest.mark.parametrize("rounds", [15, 100])
def test_equals_are_not_told_apart(heavy, correlation, noise, rounds):
    rng = np.random.default_rng(1)
    told = 0
    for _ in range(TRIALS):
        a, b = (latencies(rng, rounds, correlation, heavy, noise) for _ in range(2))
        told += verdict(ratio_interval(a, b)) != "cannot tell"
    assert told <= 3


@pytest.mark.parametrize("heavy", [False, True], ids=["normal", "heavy tails"])
@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_three_per_cent_is_found_once_sampling_has_converged(heavy, correlation):
    rng = np.random.default_rng(2)
    found = trials = 0
    for _ in range(TRIALS):
        a, b = (latencies(rng, 200, correlation, heavy, 0.012) for _ in range(2))
        found += verdict(ratio_interval(a, 1.03 * b)) == "slower"
        found += verdict(ratio_interval(1.03 * a, b)) == "faster"
        trials += 2
    assert found >= 0.95 * trials


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_the_ratio_interval_keeps_its_coverage(correlation):
    rng = np.random.default_rng(3)
    covered = plain = 0
    for _ in range(TRIALS):
        drift = latencies(rng, 200, correlation, noise=0.02)
        interval = ratio_interval(drift, np.ones(200))
        covered += interval.low <= 1 <= interval.high
        medians = [np.median(rng.choice(drift, 200)) for _ in range(200)]
        low, high = np.quantile(medians, (0.025, 0.975))
        plain += low <= 1 <= high
    assert covered >= 0.91 * TRIALS
    if correlation:
        assert plain < 0.9 * TRIALS, "the test series would not fool a plain bootstrap"


@pytest.mark.parametrize("heavy", [False, True], ids=["normal", "heavy tails"])
@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_the_median_interval_keeps_its_coverage(heavy, correlation):
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(2 * TRIALS):
        interval = median_interval(latencies(rng, 80, correlation, heavy))
        covered += interval.low <= 1 <= interval.high
    assert covered >= 0.92 * 2 * TRIALS


def test_a_common_drift_cancels_in_pairs():
    rng = np.random.default_rng(5)
    drift = np.linspace(1.0, 1.5, 100)
    a, b = drift * latencies(rng, 100, noise=0.002), drift * latencies(rng, 100, noise=0.002) * 1.03
    assert verdict(ratio_interval(a, b)) == "slower"


def test_two_humps_stay_two_humps():
    samples = [1.0] * 50 + [2.0] * 51
    interval = median_interval(samples)
    assert (interval.low, interval.median, interval.high) == (1.0, 2.0, 2.0)
    assert not converged(samples, 0.01)


def test_median_interval_of_few_and_of_equal_samples():
    assert median_interval([3.0]) == Interval(3.0, 3.0, 3.0)
    assert median_interval([1.0, 2.0, 4.0]) == Interval(2.0, 1.0, 4.0)
    assert median_interval([5.0] * 40) == Interval(5.0, 5.0, 5.0)
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])


def test_ratios_need_pairs_and_few_pairs_say_nothing():
    assert verdict(ratio_interval([1.0, 1.0], [2.0, 2.0])) == "cannot tell"
    with pytest.raises(ValueError, match="equally long"):
        ratio_interval([1.0], [1.0, 2.0])


def test_the_verdict_needs_the_whole_interval_beyond_the_band():
    assert verdict(Interval(1.05, 1.011, 1.1)) == "faster"
    assert verdict(Interval(1.05, 1.009, 1.1)) == "cannot tell"
    assert verdict(Interval(0.95, 0.9, 0.989)) == "slower"
    assert verdict(Interval(0.95, 0.9, 0.991)) == "cannot tell"
    assert verdict(Interval(1.0, 1.0, 1.0)) == "cannot tell"


def test_stopping_takes_the_minimum_count_and_the_width():
    assert not converged([1.0] * 9, 0.01)
    assert converged([1.0] * 10, 0.01)
    assert not converged(list(np.linspace(0.9, 1.1, 50)), 0.01)


def test_correlation_is_seen():
    rng = np.random.default_rng(6)
    assert correlation_time(rng.standard_normal(2000)) < 1.3
    x = np.log(latencies(rng, 2000, 0.5))
    assert 2.0 < correlation_time(x) < 4.5  # (1 + 0.5) / (1 - 0.5) = 3
    assert block_length(np.log(latencies(rng, 2000, 0.9))) > block_length(x)
    assert correlation_time([1.0] * 50) == 1.0


def test_the_estimate_grows_with_what_is_asked():
    one = BenchSpec("add", ("a", "b"), ({"n": 1},), "a", cache="warm")
    both = BenchSpec("add", ("a", "b"), ({"n": 1},), "a", cache="both")
    many = BenchSpec("add", ("a", "b"), tuple({"n": i} for i in range(1, 11)), "a", cache="warm")
    assert 0 < estimate.seconds(one) < estimate.seconds(both) < estimate.seconds(many)
    assert estimate.seconds(one) < 30 and math.isfinite(estimate.seconds(many))
