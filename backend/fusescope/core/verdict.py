"""What a comparison says of two implementations: the interval that is shown, and the verdict by it alone, as
Kalibera and Jones judge a ratio (Rigorous benchmarking in reasonable time, ISMM 2013)."""

from __future__ import annotations

import math

VERDICTS = ("faster", "slower", "same", "inconclusive")
SAME_WITHIN = 0.01
"""Half-width of the band around 1.0 inside which two implementations count as the same; the default of the
setting ``same_within``."""

LEFT_OPEN = 1.5
"""Factor either way that a comparison leaves open at least where sampling did not converge, or where the two
did not sample alike (measure/compare.py): equal implementations were seen 5 to 10 per cent apart so, and the
bursts of the simulation (tests/measure/noise.py) slow one down by up to e^0.4."""


def of_interval(median: float, low: float, high: float, same_within: float = SAME_WITHIN) -> str:
    """One of VERDICTS for a speed-up ``median`` (> 1 is faster) with its 95 % interval.

    "faster" or "slower" where the whole interval lies beyond 1 ± same_within, "same" where it lies inside,
    "inconclusive" where it crosses an edge of the band, and where it is none.
    """
    if not (all(math.isfinite(x) and x > 0 for x in (median, low, high)) and low <= median <= high):
        return "inconclusive"
    if 1 - same_within <= low and high <= 1 + same_within:
        return "same"
    return "faster" if low > 1 + same_within else "slower" if high < 1 - same_within else "inconclusive"


def shown(
    median: float, low: float, high: float, same_within: float, converged: bool | None
) -> tuple[bool, float, float]:
    """(Whether it converged, low, high) of the interval that is shown: where it did not, it reaches LEFT_OPEN
    either way at least. ``converged`` is None in records before that was said; their intervals were too
    narrow over few rounds, and one that claims a difference smaller than its own width is taken as not so."""
    if converged is None:
        claims = low > 1 + same_within or high < 1 - same_within
        finite = 0 < low <= median <= high < math.inf
        converged = not (finite and claims and math.log(high / low) > abs(math.log(median)))
    if converged:
        return True, low, high
    return False, min(low, median / LEFT_OPEN), max(high, median * LEFT_OPEN)


def words(kind: str, same_within: float = SAME_WITHIN) -> str:
    """A verdict as people read it: "faster", "slower", "same within 1 %", "inconclusive (too noisy)"."""
    if kind == "same":
        return f"same within {100 * same_within:.3g} %"
    return "inconclusive (too noisy)" if kind == "inconclusive" else kind


def scope(processes: int) -> str:
    """What an interval holds for: "within one process", "over 5 processes"."""
    return "within one process" if processes == 1 else f"over {processes} processes"
