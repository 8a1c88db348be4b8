"""The ratio of two records' times with its interval: as it was sampled, through a baseline of both, or of two
times that have nothing in common."""

from __future__ import annotations

import math

from fusescope.analysis.statistics import Interval, allowance, enough
from fusescope.core.records import BenchSpec, Record, Speedup, Time
from fusescope.core.verdict import LEFT_OPEN, SAME_WITHIN

BETWEEN_RUNS = 0.05
"""What two runs leave open of any ratio (logarithmic), however many samples they have: another process has
other addresses, clocks, often another unit of the GPU, and no interval within a run has seen that. Of 769
recorded rows of unchanged code 98 % were within 5 % from run to run; with 0.2 %, what 60 samples allow
within a run, seven of them were "slower" or "faster"; three are now."""


def over(base: Record, other: Record, mode: str) -> Speedup | None:
    """base / other of two records of a case: as it was sampled, where one was the baseline of the run; else
    by the intervals of both over a baseline that they share; else by their two times (``ratio``). None where
    a time is not positive."""
    within = other.speedup.same_within if other.speedup else SAME_WITHIN
    sampled, turned = as_sampled(base, other, mode), as_sampled(other, base, mode)
    if sampled:
        return sampled
    if turned:
        ends = 1 / turned.high, 1 / turned.low
        return Speedup(mode, 1 / turned.median, *ends, within, turned.processes, turned.converged)
    times = base.time_of(mode), other.time_of(mode)
    return _beside(base, other, mode, within) or ratio(*times, mode, within)


def ratio(
    base: Time, other: Time, mode: str, within: float = SAME_WITHIN, least: float = 0.0
) -> Speedup | None:
    """base / other of two times that were not sampled in turn, with the widest interval that their 95 %
    intervals allow, wider by the ``allowance`` for as many rounds as the fewer samples can be of, and by
    ``least`` (logarithmic; BETWEEN_RUNS where they are of two runs) at least. It reaches
    LEFT_OPEN either way at least where one of them did not converge, which a record says for its own
    baseline, and is not known well enough for this difference either."""
    if min(base.low, other.low, other.median) <= 0:
        return None
    value = base.median / other.median
    wider = math.exp(max(allowance(max(1, min(base.n, other.n))), least))
    low, high = base.low / other.high / wider, base.high / other.low * wider
    return Speedup(mode, value, low, high, same_within=within, converged=_both_known(base, other, value))


def as_sampled(base: Record, other: Record, mode: str) -> Speedup | None:
    """base / other with the interval over paired rounds, where ``base`` was the baseline of the other's run.
    None elsewhere. The ratio is of the very medians, which names the baseline."""
    s, own = other.speedup, base.speedup
    if not (s and own and s.of == own.of == mode and own.low == own.high == 1.0):
        return None
    medians = base.time_of(mode).median / other.time_of(mode).median
    return s if math.isclose(s.median, medians, rel_tol=1e-9) else None


def _beside(base: Record, other: Record, mode: str, within: float) -> Speedup | None:
    """base / other of one run with a third as the baseline; None where they share none, which the time of the
    baseline tells.

    What few or correlated rounds leave unseen is the same for all ratios of a run, and bounded in either
    interval over the baseline: the wider of the two, and what the intervals of the two times leave open on
    top. In the simulation (tests/measure/test_false_claims.py) their quadratic sum would be too narrow
    between kernels with two humps beside a quiet baseline.
    """
    first, second = base.speedup, other.speedup
    times = base.time_of(mode), other.time_of(mode)
    if not (first and second and first.of == second.of == mode and first.processes == second.processes):
        return None
    shared = [s.median * time.median for s, time in zip((first, second), times, strict=True)]
    paired = [Interval(s.median, *(s.sampled or (s.low, s.high))) for s in (first, second)]
    if not math.isclose(*shared, rel_tol=1e-9) or not all(map(_positive, (*paired, *times))):
        return None
    value = times[0].median / times[1].median
    half = max(map(_half, paired)) + sum(map(_half, times))
    counts = sorted(time.n for time in times)  # of the same rounds
    alike = counts[1] <= 2 * counts[0] or abs(math.log(value)) > math.log(LEFT_OPEN)
    known = alike and _both_known(*times, value)
    ends = value * math.exp(-half), value * math.exp(half)
    return Speedup(mode, value, *ends, within, first.processes, known)


def _positive(found: Interval | Time) -> bool:
    return 0 < found.low <= found.median <= found.high < math.inf


def _half(found: Interval | Time) -> float:
    """The farther end of an interval, as the logarithm of its factor to the median."""
    return max(math.log(found.high / found.median), math.log(found.median / found.low))


def _both_known(base: Time, other: Time, ratio: float) -> bool:
    return all(_known(time, math.log(ratio)) for time in (base, other))


def _known(time: Time, difference: float) -> bool:
    width = (time.high - time.low) / time.median
    least = time.n >= BenchSpec.min_samples
    return time.converged or (least and width < enough(BenchSpec.precision, difference))
