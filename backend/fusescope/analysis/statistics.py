"""Intervals and verdicts for latencies: numbers in, numbers out.

Latencies are skewed, heavy-tailed and correlated from one sample to the next, so nothing here assumes a
distribution or independence. Everything is about the median: an interval of it from order statistics, and,
for a comparison, a block bootstrap of the median of paired ratios.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

BAND = 0.01
"""Half-width of the band around 1.0 inside which two implementations count as the same (measuring rule
5)."""

_Z = 1.959963984540054  # 97.5 % point of the normal distribution
_RESAMPLES = 1000
# of the resampled medians on each side: with 0.025 the intervals held 92 to 94 in 100 on correlated series
_TAIL = 0.01


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


def correlation_time(series) -> float:
    """1 + 2 * sum of the autocorrelations of a series, at least 1: how many correlated samples are worth one
    independent one.

    The sum stops at the first non-positive pair of neighbouring lags (Geyer's initial positive sequence,
    Statistical Science 7(4), 1992), which keeps the noise of distant lags out.
    """
    rho = _autocorrelation(series)
    total = 1.0
    for lag in range(1, rho.size - 1, 2):
        pair = rho[lag] + rho[lag + 1]
        if pair <= 0:
            break
        total += 2 * pair
    return max(1.0, total)


def block_length(series) -> int:
    """Block length for a circular block bootstrap of a series, between 1 and a third of it.

    The automatic choice of Politis and White (Econometric Reviews 23, 2004, with the correction of Patton,
    Politis and White, 28, 2009): (2 G^2 / D)^(1/3) n^(1/3), G = sum |k| R(k), D = 4/3 (sum R(k))^2,
    autocovariances R weighted by a flat-top window that ends where five lags in a row are insignificant.
    Never below 1.5 n^(1/3): in a short series a correlation of 0.5 is not significant and would be missed,
    and blocks that are too long cost width, blocks that are too short cost truth.
    """
    rho = _autocorrelation(series)
    n = len(series)
    shortest = max(1, min(math.ceil(1.5 * n ** (1 / 3)), n // 3))
    if rho.size < 3:
        return shortest
    threshold = 2 * math.sqrt(math.log10(max(n, 10)) / n)
    quiet = max(5, math.ceil(math.sqrt(math.log10(max(n, 10)))))
    significant = np.abs(rho[1:]) >= threshold
    last = next(
        (k for k in range(significant.size) if not significant[k : k + quiet].any()), significant.size
    )
    if last == 0:
        return shortest
    window = min(2 * last, rho.size - 1)
    lags = np.arange(1, window + 1)
    weight = np.clip(2 * (1 - lags / window), 0, 1)
    g = 2 * float(np.sum(weight * lags * rho[1 : window + 1]))
    d = 4 / 3 * (1 + 2 * float(np.sum(weight * rho[1 : window + 1]))) ** 2
    length = math.ceil((2 * g * g / d * n) ** (1 / 3)) if d > 0 else shortest
    return int(min(max(shortest, length), max(1, n // 3)))


def ratio_interval(baseline, other, seed: int = 0) -> Interval:
    """Median of the paired ratios baseline / other (> 1: other is faster) with a 95 % block-bootstrap
    interval over rounds.

    ``baseline`` and ``other`` hold one time a round, paired by position. Blocks of consecutive rounds are
    drawn, so that the interval keeps its coverage when neighbouring rounds resemble each other. Percentiles
    of so few independent pieces are too narrow; they are stretched, on the logarithmic scale, away from the
    median by t(pieces - 1) / 1.96 (the usual small-sample correction), pieces being the rounds divided by the
    block length or the correlation time, whichever is longer, and by sqrt(n / (n - length)) for the variance
    that blocks lose inside themselves; by 1 + 3/n more, because a correlation of 0.5 cannot be seen in ten
    rounds (found by simulation: tests/measure/test_statistics.py).
    """
    a, b = np.asarray(baseline, dtype=float), np.asarray(other, dtype=float)
    if a.shape != b.shape or a.ndim != 1 or a.size == 0:
        raise ValueError(f"paired rounds are two equally long lists, not of shapes {a.shape} and {b.shape}")
    if not (np.all(a > 0) and np.all(b > 0)):
        raise ValueError("times are positive numbers")
    ratios = np.log(a / b)  # so that twice as fast and half as fast lie equally far from 1
    median = float(np.median(ratios))
    n = ratios.size
    if n < 3:
        return Interval(math.exp(median), 0.0, math.inf)  # too few rounds for a verdict, which will say so
    above = _above(ratios, median)
    length = block_length(above)
    rng = np.random.default_rng(seed)
    medians = np.empty(_RESAMPLES)
    blocks = math.ceil(n / length)
    chunk = max(1, 2_000_000 // (blocks * length))  # bounds the memory of one batch of resamples to 16 MB
    for start in range(0, _RESAMPLES, chunk):
        count = min(chunk, _RESAMPLES - start)
        first = rng.integers(0, n, (count, blocks, 1))
        index = ((first + np.arange(length)) % n).reshape(count, -1)[:, :n]
        medians[start : start + count] = np.median(ratios[index], axis=1)
    low, high = np.quantile(medians, (_TAIL, 1 - _TAIL))
    stretch = (
        _student(n / max(correlation_time(above), length) - 1)
        / _Z
        * math.sqrt(n / (n - length))
        * (1 + 3 / n)
    )
    low, high = median - (median - low) * stretch, median + (high - median) * stretch
    return Interval(*(float(np.exp(x)) for x in (median, min(low, median), max(high, median))))


def verdict(interval: Interval) -> str:
    """ "faster" or "slower" when the whole interval of the speed-up is beyond 1 +- BAND, else "cannot
    tell"."""
    if interval.low > 1 + BAND:
        return "faster"
    if interval.high < 1 - BAND:
        return "slower"
    return "cannot tell"


def _above(x: np.ndarray, median: float) -> np.ndarray:
    return np.sign(x - median)


def _autocorrelation(series) -> np.ndarray:
    """Autocorrelations at lags 0 ... min(n // 4, 100); a constant series is uncorrelated."""
    x = np.asarray(series, dtype=float)
    x = x - x.mean() if x.size else x
    power = float(x @ x)
    lags = min(x.size // 4, 100)
    if power == 0 or lags < 1:
        return np.array([1.0])
    return np.array([1.0] + [float(x[:-k] @ x[k:]) / power for k in range(1, lags + 1)])


def _student(freedom: float) -> float:
    """97.5 % point of Student's t, by the Cornish-Fisher expansion in 1/freedom (within 1 % for freedom >=
    3)."""
    f, z = max(freedom, 2.0), _Z
    return (
        z
        + (z**3 + z) / (4 * f)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * f * f)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * f**3)
    )
