"""What a comparison says of two implementations, from the interval of the speed-up and whether sampling
converged."""

from __future__ import annotations

import math

VERDICTS = ("faster", "slower", "same", "inconclusive")
SAME_WITHIN = 0.01
"""Half-width of the band around 1.0 inside which two implementations count as the same; the default of the
setting ``same_within``."""


def of_interval(
    median: float, low: float, high: float, same_within: float = SAME_WITHIN, converged: bool = True
) -> str:
    """One of VERDICTS for a speed-up ``median`` (> 1 is faster) with its 95 % interval.

    "faster" or "slower" where the whole interval lies beyond 1 ± same_within, "same" where it lies inside,
    "inconclusive" where it crosses the edge of the band. An interval wider than the difference it is about
    (high / low above the ratio itself) is inconclusive wherever it lies, and so is what did not converge.
    """
    known = all(math.isfinite(x) and x > 0 for x in (median, low, high)) and low <= median <= high
    if not (known and converged):
        return "inconclusive"
    if 1 - same_within <= low and high <= 1 + same_within:
        return "same"
    if math.log(high / low) > abs(math.log(median)):
        return "inconclusive"
    return "faster" if low > 1 + same_within else "slower" if high < 1 - same_within else "inconclusive"


def words(kind: str, same_within: float = SAME_WITHIN) -> str:
    """A verdict as people read it: "faster", "slower", "same within 1 %", "inconclusive (too noisy)"."""
    if kind == "same":
        return f"same within {100 * same_within:.3g} %"
    return "inconclusive (too noisy)" if kind == "inconclusive" else kind


def scope(processes: int) -> str:
    """What an interval holds for: "within one process", "over 5 processes"."""
    return "within one process" if processes == 1 else f"over {processes} processes"
