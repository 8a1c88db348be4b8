"""The verdict of a comparison as people read it: faster, slower, same within N %, or inconclusive."""

from __future__ import annotations

import math

from fusescope.charts import numbers

_CLOSE = 5  # per cent: an interval within this says "same"; a wider one is inconclusive


def verdict(kind: str, low: float, high: float) -> str:
    """``kind`` is the verdict of a record ("faster", "slower", "cannot tell"); low and high the interval of
    its speed-up."""
    if kind in ("faster", "slower"):
        return kind
    spread = math.ceil(100 * max(high - 1, 1 - low) - 1e-9) if low and high else math.inf
    return f"same within {max(1, spread)} %" if spread <= _CLOSE else "inconclusive"


def sign(text: str) -> str:
    """A mark for a verdict: never colour alone."""
    return {"faster": "▲", "slower": "▼"}.get(text, "≈")


def headline(ratio: float, text: str) -> str:
    """ "▲ 1.84× faster", "▼ 10.3× slower", "≈ same within 2 %"."""
    if text in ("faster", "slower"):
        return f"{sign(text)} {numbers.ratio(ratio if text == 'faster' else 1 / ratio)} {text}"
    return f"{sign(text)} {text}"


def interval(text: str, low: float, high: float) -> str:
    """The interval next to a headline: of the slow-down where it says slower."""
    low, high = (1 / high, 1 / low) if text == "slower" and low > 0 else (low, high)
    return f"[{numbers.three(low)}, {numbers.three(high)}]"
