"""What implementations with the same source, which should be equally fast, say about two runs: a check."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import NamedTuple

MIDDLE, MOST = 0.02, 0.10
"""How far equal sources on equal cases may be apart, as ratio - 1: in the median, and in any row. In 769
such rows of the recorded comparisons, between two runs on one model of GPU each, 98 % were within 5 %, and
none was 10 % apart."""


class Control(NamedTuple):
    """The median and the largest difference of equal sources on equal cases, as ratios - 1 >= 0, and of how
    many rows."""

    middle: float
    worst: float
    rows: int

    @property
    def failed(self) -> bool:
        """Whether the conditions of the two runs differ more than runs do."""
        return self.middle > MIDDLE or self.worst > MOST

    @property
    def allowance(self) -> float:
        """What a failed check leaves open of any other difference between the two runs (logarithmic)."""
        return math.log1p(self.worst) if self.failed else 0.0

    @property
    def text(self) -> str:
        """ "Check passed: equal sources are 0.5 % apart in the median, 7 % at most, in 110 rows"."""
        apart = (
            f"equal sources are {_percent(self.middle)} apart in the median, {_percent(self.worst)} at most, "
            f"in {self.rows:,} row{'s' * (self.rows != 1)}"
        )
        if not self.failed:
            return f"Check passed: {apart}"
        return (
            f"Check failed: {apart}, where {_percent(MIDDLE)} and {_percent(MOST)} are the bounds; a "
            f"difference of less than {_percent(self.worst)} is no verdict here"
        )


def control(ratios: Iterable[float]) -> Control | None:
    """The check from the ratios of rows with the same source, workload and device; None without one."""
    apart = [max(r, 1 / r) - 1 for r in ratios]
    return Control(statistics.median(apart), max(apart), len(apart)) if apart else None


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
