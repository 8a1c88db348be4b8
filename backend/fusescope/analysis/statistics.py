"""Intervals for latencies and their ratios: numbers in, numbers out.

Latencies are skewed, heavy-tailed and correlated from one sample to the next, so nothing here assumes a
distribution or independence. One time is a median with an interval from order statistics. A comparison is the
ratio of two shown medians; its interval comes from the paired rounds, so that what both share cancels, and
stays honest where rounds resemble their neighbours: a simulation of slow drifts, bursts and kernels that
stick to one of two speeds holds it (tests/measure/test_false_claims.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

_SHARE, _WIDEST = 1 / 3, 0.5
"""How wide an interval may be, over its median, where times are compared: this share of their difference, and
at most; no verdict needs it narrower, and intervals of the two that are so do not overlap."""

_Z = 1.959963984540054  # 97.5 % point of the normal distribution

_STUDENT = {1: 63.66, 2: 9.925, 3: 5.841, 4: 4.604, 6: 3.707, 10: 3.169, 30: 2.750, math.inf: 2.576}
"""99.5 % points of Student's t by degrees of freedom. Sampling that looks at its interval until it is narrow
has several chances to be wrong: with 99 % at each look, 95 % hold at whichever look is the last."""

_CAUTION = 1.645  # standard errors above its estimate at which a correlation is taken: its 95 % upper limit
_FEWEST_INDEPENDENT = 3  # rounds' worth of information; below, the spread of a mean is anybody's guess
_CLIP = 3.0  # standard deviations (by the median absolute deviation) beyond which a lone round counts no more
_UNKNOWN = 1000.0  # the factor either way that stands for "nothing is known": JSON has no infinity

_UNSEEN = ((0.05, 40), (math.log(1.25), 20))
"""(Logarithmic difference, rounds): a kernel may run at one of two speeds and stay with it for tens of
rounds, and other load may slow one implementation down, by more, for some ten. Up to so many rounds either
may not have shown itself, and an interval is wider by this much; of that a half again as many leave 4 %."""

_MANY, _FARTHER = 30, 3.0
"""How far the mean of rounds can be off, however few of them are independent, is bounded by what may be
unseen at most (five times what two speeds of a kernel were seen to differ by), and by so many times the
farthest round, once where rounds are many. Without it three times as fast would be inconclusive behind a
noise of 2 %."""


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval, in the unit of the data."""

    median: float
    low: float
    high: float

    @property
    def relative_width(self) -> float:
        """(high - low) / median; infinite where the median is not positive."""
        return (self.high - self.low) / self.median if self.median > 0 else math.inf


def median_interval(samples) -> Interval:
    """Median of n >= 1 samples with its 95 % interval, as order statistics.

    For independent samples the number below the true median is binomial(n, 1/2), so the interval runs between
    the order statistics at n/2 -+ 1.96 sqrt(n)/2, whatever the distribution. Correlation multiplies the
    variance of that count by the correlation time of the indicator "above the median", so the ranks are moved
    out by its square root. With fewer than six samples no pair of order statistics reaches 95 %; then the
    interval is the whole range.
    """
    x = np.asarray(samples, dtype=float)
    n = x.size
    if n == 0:
        raise ValueError("the median of no samples is not defined")
    ordered = np.sort(x)
    median = float(np.median(ordered))
    if n < 6:
        return Interval(median, float(ordered[0]), float(ordered[-1]))
    half = _Z * math.sqrt(n * correlation_time(_above(x, median))) / 2
    low = max(0, math.floor((n - 1) / 2 - half))
    high = min(n - 1, math.ceil((n - 1) / 2 + half))
    return Interval(median, float(ordered[low]), float(ordered[high]))


def converged(samples, precision: float, min_samples: int = 10) -> bool:
    """Measuring rule 4: at least ``min_samples``, and the 95 % interval of the median is under ``precision``
    of it."""
    return len(samples) >= min_samples and median_interval(samples).relative_width < precision


def enough(precision: float, difference: float) -> float:
    """The width over the median at which a time is known well enough: ``precision``, or the share that a
    comparison needs of its ``difference`` (logarithmic)."""
    return max(precision, min(_SHARE * abs(difference), _WIDEST))


def correlation_time(series) -> float:
    """1 + 2 * sum of the autocorrelations of a series, at least 1: how many correlated samples are worth one
    independent one.

    The sum stops at the first non-positive pair of neighbouring lags (Geyer's initial positive sequence,
    Statistical Science 7(4), 1992), which keeps the noise of distant lags out, and at lag min(n // 4, 100).
    """
    x = np.asarray(series, dtype=float)
    x = x - x.mean() if x.size else x
    power = float(x @ x)
    total, last = 1.0, min(x.size // 4, 100)
    if power == 0:
        return total
    for lag in range(1, last, 2):  # most series need few of the lags
        pair = float(x[:-lag] @ x[lag:]) / power + float(x[: -lag - 1] @ x[lag + 1 :]) / power
        if pair <= 0:
            break
        total += 2 * pair
    return max(1.0, total)


def ratio_interval(baseline, other, shown: float | None = None) -> Interval:
    """The ratio baseline / other (> 1: other is faster) with a 95 % interval over rounds.

    ``baseline`` and ``other`` hold one time per round, paired by position. ``shown`` is the ratio of the
    times shown next to it (default: of the medians over rounds): it is the estimate, and lies in the interval
    with the mean and the median of the paired log-ratios, so that where they contradict one another, as on a
    busy machine that holds up some rounds a hundred times as long as others, the interval says so.

    Half the width, on the logarithmic scale, is the larger of two, each with Student's t for its few degrees
    of freedom: from the variance of the rounds and their number divided by the correlation time
    (1 + r) / (1 - r), r being the 95 % upper limit of the lag-1 correlation after Kendall's correction of its
    bias (Biometrika 41, 1954); and from the 0.4 n^(2/3) slowest cosine waves in the series (Lazarus, Lewis,
    Stock and Watson, Journal of Business & Economic Statistics 36, 2018), which see a slow drift under fast
    noise. ``allowance`` comes on top; the farthest round bounds both. Rounds far off are clipped where they
    come alone, not where they come in runs. Raises ValueError for lists of unequal length and for times that
    are not positive.
    """
    a, b = np.asarray(baseline, dtype=float), np.asarray(other, dtype=float)
    if a.shape != b.shape or a.ndim != 1 or a.size == 0:
        raise ValueError(f"paired rounds are two equally long lists, not of shapes {a.shape} and {b.shape}")
    if not (np.all(a > 0) and np.all(b > 0)):
        raise ValueError("times are positive numbers")
    shown = float(np.median(a) / np.median(b)) if shown is None else shown
    logs = np.log(a / b)  # twice and half as fast lie equally far from 1
    mean, half = _paired(logs)
    return _around(shown, half, mean, float(np.median(logs)))


def ratio_of_processes(ratios, within, shown: float) -> Interval:
    """The ratio over several processes with a 95 % interval that holds for a further process.

    ``ratios``: the estimate of each of K >= 1 processes; ``within``: the interval of each; ``shown``: the
    ratio of the pooled medians. Half the width is Student's t (K - 1 degrees) times the standard error of the
    K logarithms, which has the spread between processes and within them. It is at least what the intervals of
    the processes leave open together, or, where these are wide because each had few rounds, 5 % more than
    the spread between processes allows: processes are independent of one another, whatever their rounds are,
    but may all have missed a second speed.
    """
    mean, half = _between(ratios, within)
    return _around(shown, half, mean)


def interval_of_processes(medians, within) -> Interval:
    """The geometric mean of the medians of K >= 1 processes with its 95 % interval, in the unit of the data;
    as ``ratio_of_processes``, for one time."""
    mean, half = _between(medians, within)
    return _around(math.exp(mean), half)


def allowance(rounds: int) -> float:
    """What is added to half the width (logarithmic) of an interval over so few rounds: a factor of 1.25 up to
    20 rounds, 5 % up to 40, 0.2 % at 60, for what has not been seen yet."""
    return max(size * min(1.0, (settled / rounds) ** 8) for size, settled in _UNSEEN)


def _around(shown: float, half: float, *logs: float) -> Interval:
    """The interval of half-width ``half`` around the logarithms of the shown ratio and of other estimates."""
    half, estimates = min(half, math.log(_UNKNOWN)), (math.log(shown), *logs)
    low, high = math.exp(min(estimates) - half), math.exp(max(estimates) + half)
    return Interval(shown, min(low, shown), max(high, shown))


def _between(values, within) -> tuple[float, float]:
    """Mean and half-width of the interval of the logarithms, one value and interval a process."""
    logs = np.log(np.asarray(values, dtype=float))
    count = logs.size
    if count == 0 or count != len(within):
        raise ValueError(f"each process has a value and an interval, not {count} and {len(within)}")
    half = math.hypot(*(math.log(i.high / i.low) / 2 for i in within)) / count
    if count > 1:
        between = _student(count - 1) * float(np.std(logs, ddof=1)) / math.sqrt(count)
        half = max(between, min(half, between + _UNSEEN[0][0]))
    return float(np.mean(logs)), half


def _paired(ratios: np.ndarray) -> tuple[float, float]:
    """Mean and half-width of the interval of log-ratios, one per round."""
    n, median = ratios.size, float(np.median(ratios))
    if n < 3:
        return median, math.inf
    spread = 1.4826 * float(np.median(np.abs(ratios - median))) or float(np.mean(np.abs(ratios - median)))
    clipped = np.clip(ratios, median - _CLIP * spread, median + _CLIP * spread)
    sides = _lag_one(np.sign(ratios - median))
    if max(_lag_one(clipped - clipped.mean()), sides) > 1 / math.sqrt(n):
        clipped = ratios  # in runs: not outliers but another speed
    mean = float(clipped.mean())
    rest = clipped - mean
    power = float(rest @ rest)
    if power == 0:
        return mean, allowance(n)
    correlation = max(_upper(_lag_one(rest), n), _upper(sides, n))
    independent = n * (1 - correlation) / (1 + correlation)
    if independent < _FEWEST_INDEPENDENT:
        independent = 1.0
    direct = _student(independent - 1) * math.sqrt(power / (n - 1) / independent)
    waves = max(4, int(0.4 * n ** (2 / 3)))
    slow = _student(waves) * math.sqrt(_slow_power(rest, waves) / n)
    times = 1 + (_FARTHER - 1) * min(1.0, _MANY / n)
    farthest = allowance(1) + times * float(np.max(np.abs(ratios - mean)))
    return mean, min(max(direct, slow) + allowance(n), farthest)


def _lag_one(series: np.ndarray) -> float:
    """Correlation of neighbours in a series around zero; 0 for a constant one."""
    power = float(series @ series)
    return float(series[:-1] @ series[1:]) / power if power else 0.0


def _upper(correlation: float, n: int) -> float:
    """The upper limit of a lag-1 correlation estimated from n rounds, from 0 to 0.999."""
    unbiased = correlation + (1 + 3 * max(correlation, 0.0)) / n
    error = math.sqrt(max(1 - min(unbiased, 1.0) ** 2, 0.0) / n)
    return min(max(unbiased + _CAUTION * error, 0.0), 0.999)


def _slow_power(series: np.ndarray, waves: int) -> float:
    """Mean power of the ``waves`` slowest cosines in a series of mean zero: the variance that matters for its
    mean, times n."""
    at = np.pi * (np.arange(series.size) + 0.5) / series.size
    shares = np.cos(np.outer(np.arange(1, waves + 1), at)) @ series
    return float(shares @ shares) * 2 / series.size / waves


def _student(freedom: float) -> float:
    """99.5 % point of Student's t, interpolated between those of _STUDENT."""
    known = sorted((1 / f, math.log(t)) for f, t in _STUDENT.items())
    return math.exp(np.interp(1 / max(freedom, 1.0), *zip(*known, strict=True)))


def _above(x: np.ndarray, median: float) -> np.ndarray:
    return np.sign(x - median)
