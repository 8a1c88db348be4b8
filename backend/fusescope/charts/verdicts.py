"""The verdict of a comparison as charts write it. Texts are those of core.verdict.words."""

from __future__ import annotations

from fusescope.analysis.compare.leaders import compared_time
from fusescope.charts import numbers
from fusescope.core.records import Record

INCONCLUSIVE = "inconclusive"
_FEW = 30
"""Samples below which an interval over rounds is wide whatever they are (analysis/statistics.py)."""


def decided(text: str) -> bool:
    """Whether a text claims a difference; nothing else stands out in bold or colour."""
    return text in ("faster", "slower")


def sign(text: str) -> str:
    """A mark for a verdict: never colour alone."""
    return {"faster": "▲", "slower": "▼"}.get(text, "?" if text.startswith(INCONCLUSIVE) else "≈")


def headline(ratio: float, text: str) -> str:
    """ "▲ 1.84× faster", "▼ 10.3× slower", "≈ same within 1 %", "? inconclusive (too noisy)"."""
    if decided(text):
        return f"{sign(text)} {numbers.ratio(ratio if text == 'faster' else 1 / ratio)} {text}"
    return f"{sign(text)} {text}"


def because(record: Record) -> str:
    """What the comparison of a record with the baseline lacks, as a clause after a colon: ": 18 samples are
    too few to tell"; "" where it has a verdict."""
    speedup, time = record.speedup, compared_time(record)
    if speedup is None or speedup.verdict != INCONCLUSIVE:
        return ""
    if unknown(speedup.low, speedup.high):
        return f": {no_interval(record)}"
    if not speedup.converged:
        return ": sampling did not converge"
    if time and time.n < _FEW:
        return f": {time.n} samples are too few to tell"
    if speedup.low <= 1 + speedup.same_within and speedup.high >= 1 - speedup.same_within:
        return f": the interval crosses the band of {100 * speedup.same_within:.3g} % around 1"
    return ": the interval is wider than the difference"


def interval(text: str, low: float, high: float) -> str:
    """The interval next to a headline: of the slow-down where it says slower; "" where it is unknown."""
    low, high = (1 / high, 1 / low) if text == "slower" and low > 0 else (low, high)
    return "" if unknown(low, high) else f"[{numbers.three(low)}, {numbers.three(high)}]"


def no_interval(record: Record) -> str:
    """Why the interval of a record's speed-up is unknown: "10 samples are too few for an interval"."""
    time = compared_time(record)
    return f"{time.n if time else 'the'} samples are too few for an interval"


def with_interval(headline: str, text: str, low: float, high: float) -> str:
    """ "▲ 1.84× faster [1.80, 1.88]", or "? inconclusive (too noisy), no interval"."""
    ends = interval(text, low, high)
    return f"{headline} {ends}" if ends else f"{headline}, no interval"


def unknown(low: float, high: float) -> bool:
    """Whether an interval says nothing: its ends are a factor of 10,000 apart or more."""
    return low <= 0 or high >= 1e4 * low
