"""The promises of the statistics, on synthetic latencies: independent, correlated, heavy-tailed. Seeded, so
never by luck."""

import math

import numpy as np
import pytest

from fusescope.analysis.statistics import (
    Interval,
    converged,
    correlation_time,
    median_interval,
    ratio_interval,
    ratio_of_processes,
)
from fusescope.core.verdict import of_interval

pytestmark = pytest.mark.slow

TRIALS = 100


def latencies(rng, n, correlation=0.0, heavy=False, noise=0.01):
    """n latencies around 1 ms: log-normal, or with Student's t (2.5 degrees) tails, and AR(1) in time."""
    shocks = rng.standard_t(2.5, n + 30) if heavy else rng.standard_normal(n + 30)
    x = np.zeros(n + 30)
    for i in range(1, n + 30):
        x[i] = correlation * x[i - 1] + shocks[i]
    return np.exp(noise * x[30:])


def verdict(interval):
    return of_interval(interval.median, interval.low, interval.high)


@pytest.mark.parametrize("heavy", [False, True], ids=["normal", "heavy tails"])
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("rounds", [5, 15, 100])
def test_the_ratio_interval_keeps_its_coverage(heavy, correlation, rounds):
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(TRIALS):
        a, b = (latencies(rng, rounds, correlation, heavy, 0.02) for _ in range(2))
        interval = ratio_interval(a, 2 * b)
        covered += interval.low <= 0.5 <= interval.high
    assert covered >= 0.95 * TRIALS


def test_the_shown_ratio_lies_in_its_interval_however_the_pairs_contradict_it():
    a, b = np.ones(100), np.repeat([0.9, 1.2], 50)
    interval = ratio_interval(a, b, shown=1.3)
    assert interval.low < 1.0 < interval.high and interval.low < 1.3 < interval.high
    assert interval.median == pytest.approx(1.3)
    assert verdict(interval) == "inconclusive"


def test_few_rounds_leave_an_allowance_for_a_speed_not_seen():
    quiet = [ratio_interval([1.05] * n, [1.0] * n) for n in (5, 30, 60, 300)]
    widths = [math.log(i.high / i.low) / 2 for i in quiet]
    assert widths == sorted(widths, reverse=True) and widths[1] == pytest.approx(0.05) and widths[3] < 1e-4
    assert [verdict(i) for i in quiet] == ["inconclusive", "inconclusive", "faster", "faster"]


def test_processes_that_differ_widen_the_interval():
    inside = [Interval(r, 0.999 * r, 1.001 * r) for r in (1.02, 1.03, 1.04)]
    interval = ratio_of_processes([1.02, 1.03, 1.04], inside, 1.03)
    assert interval.low < 1.02 and interval.high > 1.04 and interval.median == pytest.approx(1.03)
    alike = [Interval(1.03, 0.98, 1.08)] * 3
    assert ratio_of_processes([1.03] * 3, alike, 1.03).high > 1.05, "never narrower than the processes allow"
    two = ratio_of_processes([1.02, 1.04], inside[:2], 1.03)
    assert verdict(two) == "inconclusive", "two processes say little of a third"
    with pytest.raises(ValueError, match="each process"):
        ratio_of_processes([1.0], [], 1.0)


def test_the_interval_of_processes_holds_for_a_further_one():
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(4 * TRIALS):
        ratios = np.exp(0.01 * rng.standard_normal(3))
        interval = ratio_of_processes(ratios, [Interval(r, r * 0.999, r * 1.001) for r in ratios], 1.0)
        covered += interval.low <= 1 <= interval.high
    assert covered >= 0.95 * 4 * TRIALS


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
    nothing = ratio_interval([1.0, 1.0], [2.0, 2.0])
    assert verdict(nothing) == "inconclusive" and math.isfinite(nothing.high)
    with pytest.raises(ValueError, match="equally long"):
        ratio_interval([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="positive"):
        ratio_interval([0.0], [1.0])


def test_stopping_takes_the_minimum_count_and_the_width():
    assert not converged([1.0] * 9, 0.01)
    assert converged([1.0] * 10, 0.01)
    assert not converged(list(np.linspace(0.9, 1.1, 50)), 0.01)


def test_correlation_is_seen():
    rng = np.random.default_rng(6)
    assert correlation_time(rng.standard_normal(2000)) < 1.3
    x = np.log(latencies(rng, 2000, 0.5))
    assert 2.0 < correlation_time(x) < 4.5  # (1 + 0.5) / (1 - 0.5) = 3
    assert correlation_time([1.0] * 50) == 1.0


@pytest.mark.parametrize("seed", range(20))
def test_a_ratio_lies_with_the_median_of_its_rounds_where_some_are_held_up(seed):
    """Two of five rounds hold the baseline up, in runs, up to a hundred times: their mean says that the
    other, 5 % slower, is the faster one."""
    rng = np.random.default_rng(seed)
    held = np.repeat(rng.random(24) < 0.4, 5)
    baseline = np.where(held, rng.uniform(2, 100, held.size), 1.0) * rng.normal(1, 0.01, held.size)
    other = 1.05 * rng.normal(1, 0.01, held.size)
    interval = ratio_interval(baseline, other)
    assert interval.low <= float(np.median(baseline / other)) <= interval.high
    assert interval.low < 1 / 1.05 and interval.high > 1
