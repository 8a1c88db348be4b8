"""The verdict of a comparison as charts write it. Texts are those of core.verdict.words."""

from __future__ import annotations

from fusescope.charts import numbers
from fusescope.core.records import Record, Time

INCONCLUSIVE = "inconclusive"


def compared_time(record: Record) -> Time | None:
    """The time that belongs to the speed-up: that of the mode which was compared."""
    return record.time_of(record.speedup.of) if record.speedup else record.time


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


def interval(text: str, low: float, high: float) -> str:
    """The interval next to a headline: of the slow-down where it says slower."""
    low, high = (1 / high, 1 / low) if text == "slower" and low > 0 else (low, high)
    return "[unknown]" if unknown(low, high) else f"[{numbers.three(low)}, {numbers.three(high)}]"


def unknown(low: float, high: float) -> bool:
    """Whether an interval says nothing: its ends are a factor of 10,000 apart or more."""
    return low <= 0 or high >= 1e4 * low
